// A place of objects that says of some that they are not there, or gives rubbish for them, for a time
// or for good; and links to what is there.
#include <atomic>
#include <functional>
#include <optional>
#include <set>
#include <thread>

#include "cache/objects/link_reader.h"
#include "tests/cache/objects/s3_servers.h"
#include "tests/cache/postgres/postgres_fixture.h"

namespace kiln {
namespace {

using namespace samples;  // NOLINT: the vocabulary of these tests

// Answers in the place of the objects that the test says.
class LyingObjects final : public ObjectStore {
 public:
  using Lie = std::optional<Result<std::string>>;
  using Lies = std::function<Lie(const std::string& name)>;
  LyingObjects(std::unique_ptr<ObjectStore> objects, Lies lies)
      : objects_(std::move(objects)), lies_(std::move(lies)) {}
  void put(std::string name, std::string bytes, Then<void> done) override {
    objects_->put(std::move(name), std::move(bytes), std::move(done));
  }
  void get(std::string name, Then<std::string> done) override {
    if (Lie lie = lies_(name)) return done(*std::move(lie));
    objects_->get(std::move(name), std::move(done));
  }
  void remove(std::string name, Then<void> done) override {
    objects_->remove(std::move(name), std::move(done));
  }
  void list(std::string after, int limit, Then<std::vector<ObjectInfo>> done) override {
    objects_->list(std::move(after), limit, std::move(done));
  }
  Result<std::string> link(const std::string& name, std::chrono::seconds valid_for) override {
    return objects_->link(name, valid_for);
  }
  int64_t max_object_bytes() const override { return objects_->max_object_bytes(); }
  std::string describe() const override { return objects_->describe(); }

 private:
  const std::unique_ptr<ObjectStore> objects_;
  const Lies lies_;
};

class BlobReadsTest : public PostgresTest {
 protected:
  // With three programs.
  std::unique_ptr<PostgresStore> open_lying(std::chrono::milliseconds believed_after) {
    PostgresStoreOptions options;
    options.believed_after = believed_after;
    auto opened = PostgresStore::open(
        place_->url(),
        std::make_unique<LyingObjects>(open_objects(folder_.string(), {}).value(),
                                       [this](const std::string& name) { return lie_about(name); }),
        std::move(options));
    EXPECT_TRUE(opened) << opened.error().message;
    for (const int n : {1, 2, 3}) EXPECT_TRUE(put_all(**opened, n));
    return *std::move(opened);
  }
  LyingObjects::Lie lie_about(const std::string& name) const {
    if (!lies_about_all_ && name != lied_about_) return std::nullopt;
    if (gives_rubbish_) return Result<std::string>("<html>Sign in to this network</html>");
    return Result<std::string>(fail(Code::kNotFound, "no such object"));
  }
  void lie_about(int n) { lied_about_ = place_->object_of(Digest::of(blob(n))); }
  static Code code_of(Store& store, int n) {
    const auto found = look_up_blob(store, n);
    return found ? Code::kInternal : found.error().code;
  }

  std::atomic<bool> lies_about_all_{false}, gives_rubbish_{false};
  std::string lied_about_;  // changed between calls
};

// A bucket under another address, a proxy that wants a password: it may last.
TEST_F(BlobReadsTest, APlaceThatIsWrongAboutEverythingErasesNothingHoweverLong) {
  auto store = open_lying(std::chrono::milliseconds(0));
  lies_about_all_ = true;
  for (const bool rubbish : {false, true}) {
    gives_rubbish_ = rubbish;
    for (int asked = 0; asked < 3; ++asked)
      for (const int n : {1, 2, 3}) EXPECT_EQ(code_of(*store, n), Code::kUnavailable);
  }
  store->flush();
  for (const int n : {1, 2, 3}) {
    EXPECT_EQ(state_of(n), "L");
    EXPECT_TRUE(look_up_program(*store, n));
  }
  EXPECT_EQ(store->totals().corrupt_blobs, 0);
  lies_about_all_ = false;
  for (const int n : {1, 2, 3}) EXPECT_EQ(look_up_blob(*store, n).value_or(""), blob(n));
}

TEST_F(BlobReadsTest, WhatIsNotThereOrRubbishForAWhileIsNotForgotten) {
  auto store = open_lying(std::chrono::hours(1));
  lie_about(1);
  for (int asked = 0; asked < 10; ++asked) {
    gives_rubbish_ = asked % 2 == 1;
    EXPECT_EQ(code_of(*store, 1), Code::kUnavailable);
  }
  store->flush();
  EXPECT_TRUE(look_up_program(*store, 1));
  EXPECT_EQ(look_up_blob(*store, 2).value_or(""), blob(2));
  lied_about_.clear();
  EXPECT_EQ(look_up_blob(*store, 1).value_or(""), blob(1));
}

TEST_F(BlobReadsTest, WhatIsNotThereForLongWhileOthersAreIsMadeAgain) {
  auto store = open_lying(std::chrono::milliseconds(200));
  lie_about(1);
  EXPECT_EQ(code_of(*store, 1), Code::kUnavailable);
  std::this_thread::sleep_for(std::chrono::milliseconds(210));
  EXPECT_EQ(code_of(*store, 1), Code::kNotFound);
  store->flush();
  EXPECT_EQ(look_up_program(*store, 1).error().code, Code::kNotFound);
  EXPECT_TRUE(look_up_program(*store, 2));
  lied_about_.clear();
  ASSERT_TRUE(put_all(*store, 1));
  EXPECT_EQ(look_up_blob(*store, 1).value_or(""), blob(1));
}

TEST_F(BlobReadsTest, WhatIsDamagedForLongWhileOthersAreRightIsMadeAgain) {
  auto store = open_lying(std::chrono::milliseconds(200));
  gives_rubbish_ = true;
  lie_about(1);
  EXPECT_EQ(code_of(*store, 1), Code::kUnavailable);
  std::this_thread::sleep_for(std::chrono::milliseconds(210));
  EXPECT_EQ(code_of(*store, 1), Code::kCorruption);
  store->flush();
  EXPECT_EQ(store->totals().corrupt_blobs, 1);
  EXPECT_EQ(look_up_program(*store, 1).error().code, Code::kNotFound);
  lied_about_.clear();
  ASSERT_TRUE(put_all(*store, 1));
  EXPECT_EQ(look_up_blob(*store, 1).value_or(""), blob(1));
}

// One that was right in between was an accident: the time begins anew.
TEST_F(BlobReadsTest, WhatIsReadRightInBetweenIsSuspectedNoMore) {
  auto store = open_lying(std::chrono::milliseconds(200));
  gives_rubbish_ = true;
  for (int asked = 0; asked < 3; ++asked) {
    lie_about(1);
    EXPECT_EQ(code_of(*store, 1), Code::kUnavailable);
    lied_about_.clear();
    EXPECT_EQ(look_up_blob(*store, 1).value_or(""), blob(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(110));
  }
}

TEST_F(BlobReadsTest, ALinkLeadsToTheBytes) {
  if (testing::S3Server::program(testing::S3Server::Kind::kSeaweedFS).empty())
    GTEST_SKIP() << "no S3 server here: `ops/python servers` installs one";
  const PostgresPlace place(
      *server_, std::make_unique<testing::S3Place>(testing::S3Server::Kind::kSeaweedFS));
  const auto store = place.open_with({}).value();
  ASSERT_TRUE(put_all(*store, 1));
  const auto link_to = [&](int n) {
    return answer<std::string>([&](auto then) { store->look_up_link(Digest::of(blob(n)), then); });
  };
  const auto link = link_to(1);
  ASSERT_TRUE(link) << link.error().message;
  LinkReader reader("", 1 << 20);
  const auto read = [&](const std::string& url) {
    return reader.read({url}, std::chrono::seconds(30)).at(0);
  };
  EXPECT_EQ(read(*link).value_or(""), blob(1));
  EXPECT_FALSE(read(link->substr(0, link->find('?')))) << "the place is nobody's to read";
  EXPECT_EQ(link_to(9).error().code, Code::kNotFound);
}

TEST_F(BlobReadsTest, AFolderHasNoLinks) {
  auto store = open();
  ASSERT_TRUE(put_all(*store, 1));
  EXPECT_EQ(answer<std::string>([&](auto then) { store->look_up_link(Digest::of(blob(1)), then); })
                .error()
                .code,
            Code::kUnsupported);
}

}  // namespace
}  // namespace kiln
