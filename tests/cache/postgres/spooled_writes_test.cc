// What is put while a part of the store is away: kept on this machine's disk, served from there, and
// stored once the store is back.
#include <atomic>
#include <thread>

#include "cache/postgres/spool.h"
#include "tests/cache/postgres/postgres_fixture.h"

namespace kiln {
namespace {

using namespace samples;  // NOLINT: the vocabulary of these tests

// Objects that are away while the test says so. `as_one_goes_up`: called once, with the next that is put.
class DistantObjects final : public ObjectStore {
 public:
  DistantObjects(std::unique_ptr<ObjectStore> objects, const std::atomic<bool>& away,
                 std::function<void()>& as_one_goes_up)
      : objects_(std::move(objects)), away_(away), as_one_goes_up_(as_one_goes_up) {}
  void put(std::string name, std::string bytes, Then<void> done) override {
    if (const auto then = std::exchange(as_one_goes_up_, nullptr)) then();
    away_ ? done(gone()) : objects_->put(std::move(name), std::move(bytes), std::move(done));
  }
  void get(std::string name, Then<std::string> done) override {
    away_ ? done(gone()) : objects_->get(std::move(name), std::move(done));
  }
  void remove(std::string name, Then<void> done) override {
    away_ ? done(gone()) : objects_->remove(std::move(name), std::move(done));
  }
  void list(std::string after, int limit, Then<std::vector<ObjectInfo>> done) override {
    away_ ? done(gone()) : objects_->list(std::move(after), limit, std::move(done));
  }
  Result<std::string> link(const std::string& name, std::chrono::seconds valid_for) override {
    return objects_->link(name, valid_for);
  }
  int64_t max_object_bytes() const override { return objects_->max_object_bytes(); }
  std::string describe() const override { return objects_->describe(); }

 private:
  static tl::unexpected<Error> gone() { return fail(Code::kUnavailable, "nobody answers"); }
  const std::unique_ptr<ObjectStore> objects_;
  const std::atomic<bool>& away_;
  std::function<void()>& as_one_goes_up_;
};

class SpooledWritesTest : public PostgresTest {
 protected:
  std::unique_ptr<PostgresStore> open_at(const Path& folder, int64_t bytes = 1 << 20) {
    PostgresStoreOptions options;
    options.spool = folder;
    options.spool_bytes = bytes;
    options.log = [this](const std::string& line) {
      const std::scoped_lock lock(mu_);
      log_ += line + "\n";
    };
    return open_with(std::move(options));
  }
  std::unique_ptr<PostgresStore> open_with(PostgresStoreOptions options) {
    auto objects = open_objects(folder_.string(), {}).value();
    auto opened = PostgresStore::open(
        place_->url(), std::make_unique<DistantObjects>(std::move(objects), away_, as_one_goes_up_),
        std::move(options));
    EXPECT_TRUE(opened) << opened.error().message;
    return *std::move(opened);
  }
  std::unique_ptr<PostgresStore> open_spooling() { return open_at(spool()); }
  Path spool() const { return dir_.path() / "spool"; }

  void put_while_away(Store& store, int n) {
    EXPECT_TRUE(put_blob(store, n)) << "durable on this disk";
    EXPECT_TRUE(put_kernel(store, n));
    const Status program = put_program(store, n);
    ASSERT_FALSE(program) << "it would not survive this machine";
    EXPECT_EQ(program.error().code, Code::kUnavailable);
    EXPECT_NE(program.error().message.find("waits on this machine's disk"), std::string::npos)
        << program.error().message;
  }
  void expect_served(Store& store, int n, bool is_only_here) {
    const auto found = once_it_is_back([&] { return look_up_program(store, n); });
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(found->manifest, program_to_json(program(n)));
    EXPECT_EQ(found->is_only_here, is_only_here);
    const auto stored = once_it_is_back([&] { return store.kernel(key("kernel", n)); });
    ASSERT_TRUE(stored) << stored.error().message;
    EXPECT_EQ(stored->kernel, kernel(n).kernel);
    EXPECT_EQ(stored->tuned_on, kernel(n).tuned_on);
    const auto bytes = once_it_is_back([&] { return look_up_blob(store, n); });
    EXPECT_TRUE(bytes.value_or("") == blob(n)) << n;
  }
  static void expect_gone_up(Store& store) {
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (store.totals().spooled_bytes > 0 && std::chrono::steady_clock::now() < patience)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(store.totals().spooled, 0);
    EXPECT_EQ(store.totals().spooled_bytes, 0);
  }
  int files_spooled() const {
    int files = 0;
    for (const auto& file : std::filesystem::recursive_directory_iterator(spool()))
      files += file.is_regular_file() ? 1 : 0;
    return files;
  }

  std::atomic<bool> away_{false};
  std::function<void()> as_one_goes_up_;
  const TempDir dir_ = TempDir::create("kiln-spool-test").value();
  std::mutex mu_;
  std::string log_;  // guarded by mu_
};

TEST_F(SpooledWritesTest, WhatIsPutWhileTheObjectsAreAwayIsServedAndGoesUpWhenTheyAreBack) {
  auto store = open_spooling();
  ASSERT_TRUE(put_all(*store, 1));
  away_ = true;
  for (const int n : {2, 3}) put_while_away(*store, n);
  for (const int n : {2, 3}) expect_served(*store, n, true);
  EXPECT_EQ(store->totals().spooled, 4);
  EXPECT_GT(store->totals().spooled_bytes, 0);
  EXPECT_EQ(place_->ask("SELECT count(*) FROM kiln.kernels"), "1");
  away_ = false;
  expect_gone_up(*store);
  EXPECT_EQ(files_spooled(), 0);
  for (const int n : {1, 2, 3}) expect_served(*store, n, false);
  for (const int n : {1, 2, 3}) EXPECT_EQ(state_of(n), "L");
}

// The folder is copied while the store is open, as kill -9 leaves it.
TEST_F(SpooledWritesTest, ACoordinatorThatWasKilledServesWhatWaitsAndSendsItUp) {
  auto store = open_spooling();
  away_ = true;
  for (const int n : {1, 2}) put_while_away(*store, n);
  ASSERT_TRUE(put_blob(*store, 3)) << "killed before its kernel came";
  const Path left = dir_.path() / "left";
  std::filesystem::copy(spool(), left, std::filesystem::copy_options::recursive);
  store.reset();
  store = open_at(left);
  EXPECT_NE(log_.find("2 programs and 2 kernels wait"), std::string::npos) << log_;
  for (const int n : {1, 2}) expect_served(*store, n, true);
  EXPECT_EQ(store->totals().spooled, 4);
  away_ = false;
  expect_gone_up(*store);
  for (const int n : {1, 2}) expect_served(*store, n, false);
  EXPECT_EQ(state_of(3), "P") << "claimed, and never put";
}

TEST_F(SpooledWritesTest, WhilePostgresIsAwayToo) {
  auto store = open_spooling();
  server_->kill();
  put_while_away(*store, 1);
  expect_served(*store, 1, true);
  server_->begin();
  expect_gone_up(*store);
  expect_served(*store, 1, false);
}

// A full store is there: what it does not take does not wait for it.
TEST_F(SpooledWritesTest, WhatTheStoreHasNoRoomForIsNotKept) {
  PostgresStoreOptions options;
  options.spool = spool();
  options.max_bytes = 1;
  const auto store = open_with(std::move(options));
  const Status more = put_blob(*store, 1);
  ASSERT_FALSE(more);
  EXPECT_NE(more.error().message.find("the cache is full"), std::string::npos);
  EXPECT_EQ(store->totals().spooled_bytes, 0);
}

// The binary is claimed and put, and its row cannot be written any more.
TEST_F(SpooledWritesTest, WhenPostgresDiesWhileABinaryGoesUp) {
  auto store = open_spooling();
  as_one_goes_up_ = [this] { server_->kill(); };
  put_while_away(*store, 1);
  expect_served(*store, 1, true);
  server_->begin();
  expect_gone_up(*store);
  expect_served(*store, 1, false);
  EXPECT_EQ(state_of(1), "L");
}

TEST_F(SpooledWritesTest, WhatDoesNotFitIsNotKept) {
  auto store = open_at(spool(), 8000);
  away_ = true;
  put_while_away(*store, 0);
  const Status more = put_blob(*store, 4);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, Code::kUnavailable);
  EXPECT_NE(log_.find("the spool is full"), std::string::npos) << log_;
  EXPECT_FALSE(put_kernel(*store, 4));
  EXPECT_LE(store->totals().spooled_bytes, 8000);
  expect_served(*store, 0, true);
}

TEST_F(SpooledWritesTest, WhatIsTakenBackOrForgottenMeanwhileDoesNotGoUp) {
  auto store = open_spooling();
  away_ = true;
  for (const int n : {1, 2, 3, 4}) put_while_away(*store, n);
  TakeBack what;
  what.kernels = {key("kernel", 1)};
  what.programs = {key("program", 2)};
  const auto would = answer_of<TakenBack>([&](auto then) { store->would_take_back(what, then); });
  const auto taken = answer_of<TakenBack>([&](auto then) { store->take_back(what, 7, then); });
  ASSERT_TRUE(would && taken);
  for (const TakenBack& each : {*would, *taken}) {
    EXPECT_EQ(std::set(each.programs.begin(), each.programs.end()),
              (std::set{key("program", 1), key("program", 2)}));
    EXPECT_EQ(std::set(each.kernels.begin(), each.kernels.end()),
              (std::set{key("kernel", 1), key("kernel", 2)}));
  }
  ASSERT_TRUE(forget(*store, "program", 3));
  away_ = false;
  expect_gone_up(*store);
  for (const int n : {1, 2, 3})
    EXPECT_EQ(look_up_program(*store, n).error().code, Code::kNotFound) << n;
  for (const int n : {1, 2}) EXPECT_FALSE(store->kernel(key("kernel", n))) << n;
  EXPECT_TRUE(store->kernel(key("kernel", 3)));
  expect_served(*store, 4, false);
}

TEST_F(SpooledWritesTest, WhatAnotherCoordinatorTookBackDoesNotGoUp) {
  auto store = open_spooling();
  away_ = true;
  for (const int n : {1, 2}) put_while_away(*store, n);
  store.reset();
  away_ = false;
  TakeBack what;
  what.kernels = {key("kernel", 1)};
  ASSERT_TRUE(answer_of<TakenBack>([&](auto then) { open()->take_back(what, 7, then); }));
  store = open_spooling();
  expect_gone_up(*store);
  EXPECT_EQ(look_up_program(*store, 1).error().code, Code::kNotFound);
  EXPECT_FALSE(store->kernel(key("kernel", 1)));
  expect_served(*store, 2, false);
}

TEST_F(SpooledWritesTest, WhatALaterTermStoredStays) {
  auto store = open_spooling();
  away_ = true;
  put_while_away(*store, 1);
  store.reset();
  away_ = false;
  StoredKernel later = kernel(1);
  later.kernel.schedule = "cpu.pointwise vector=99";
  {
    auto other = open();
    ASSERT_TRUE(put_blob(*other, 1));
    ASSERT_TRUE(wait([&](auto done) { other->put_kernel(later, done); }));
  }
  store = open_spooling();
  expect_gone_up(*store);
  EXPECT_EQ(store->kernel(key("kernel", 1)).value().kernel.schedule, later.kernel.schedule);
  EXPECT_TRUE(look_up_program(*store, 1));
}

TEST_F(SpooledWritesTest, DamagedFilesAreDroppedAndTheRestGoesUp) {
  auto store = open_spooling();
  away_ = true;
  for (const int n : {1, 2, 3}) put_while_away(*store, n);
  store.reset();
  flip_one_bit(spool() / "programs" / key("program", 1).hex());
  flip_one_bit(BlobStore::path_of(spool() / "blobs", Digest::of(blob(2))));
  store = open_spooling();
  EXPECT_NE(log_.find("the spooled program"), std::string::npos) << log_;
  EXPECT_EQ(look_up_program(*store, 1).error().code, Code::kNotFound);
  away_ = false;
  expect_gone_up(*store);
  EXPECT_TRUE(store->kernel(key("kernel", 1)));
  EXPECT_FALSE(store->kernel(key("kernel", 2))) << "its binary is nowhere";
  EXPECT_FALSE(look_up_program(*store, 2));
  expect_served(*store, 3, false);
}

TEST_F(SpooledWritesTest, WithoutASpoolWhatIsPutMeanwhileHasFailed) {
  auto store = open_with({});
  away_ = true;
  EXPECT_FALSE(put_blob(*store, 1));
  EXPECT_FALSE(put_kernel(*store, 1));
  EXPECT_FALSE(put_program(*store, 1));
  EXPECT_EQ(store->totals().spooled, 0);
}

}  // namespace
}  // namespace kiln
