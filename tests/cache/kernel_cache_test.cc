// The store on one machine's disk: the contract of every store, and what is its own.
#include "cache/kernel_cache.h"

#include <thread>

#include "tests/cache/store_contract.h"

namespace kiln {
namespace {

using namespace samples;  // NOLINT: the vocabulary of these tests

class Folder final : public StorePlace {
 public:
  Result<std::unique_ptr<Store>> open(StoreSettings settings) override {
    CacheOptions options;
    options.max_bytes = settings.max_bytes;
    options.keep_used_ms = settings.keep_used_ms;
    options.now_ms = std::move(settings.now_ms);
    options.evicted = std::move(settings.evicted);
    TRY(auto cache, KernelCache::open(dir_.path(), std::move(options)));
    return std::unique_ptr<Store>(std::move(cache));
  }
  void lose(const Digest& blob) override { std::filesystem::remove(path(blob)); }
  void damage(const Digest& blob) override { flip_one_bit(path(blob)); }

 private:
  Path path(const Digest& blob) const { return BlobStore::path_of(dir_.path() / "blobs", blob); }

  const TempDir dir_ = TempDir::create("kiln-store").value();
};

INSTANTIATE_TEST_SUITE_P(Folder, StoreContract,
                         ::testing::Values(StoreKind{"SqliteAndAFolder",
                                                     [] { return std::make_unique<Folder>(); }}),
                         [](const auto& kind) { return kind.param.name; });

class KernelCacheTest : public ::testing::Test {
 protected:
  void reopen() {
    cache_.reset();
    auto opened = KernelCache::open(dir_.path());
    ASSERT_TRUE(opened) << opened.error().message;
    cache_ = *std::move(opened);
  }

  TempDir dir_ = TempDir::create("kiln-cache").value();
  std::unique_ptr<KernelCache> cache_ = KernelCache::open(dir_.path()).value();
};

// What lies there is signed and served to everybody.
TEST_F(KernelCacheTest, ADirectoryThatOthersMayWriteInIsRefusedByName) {
  cache_.reset();
  for (const Path& folder : {dir_.path(), dir_.path() / "blobs"}) {
    std::filesystem::permissions(folder, std::filesystem::perms::all);
    const auto opened = KernelCache::open(dir_.path());
    ASSERT_FALSE(opened.has_value());
    EXPECT_EQ(opened.error().code, Code::kPermissionDenied);
    EXPECT_NE(opened.error().message.find(folder.string()), std::string::npos)
        << opened.error().message;
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
  }
  reopen();
}

TEST_F(KernelCacheTest, ASecondOpenOfTheDirectoryIsRefusedAndNamesIt) {
  const auto second = KernelCache::open(dir_.path());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
  EXPECT_NE(second.error().message.find(dir_.path().string()), std::string::npos);
  cache_.reset();
  EXPECT_TRUE(KernelCache::open(dir_.path()));
}

TEST_F(KernelCacheTest, LookUpsAnswerAtOnceOnTheCallersThread) {
  ASSERT_TRUE(put_all(*cache_, 1));
  std::vector<std::thread::id> answered;
  cache_->look_up_program(key("program", 1), [&](const Result<StoredProgram>& found) {
    EXPECT_TRUE(found);
    answered.push_back(std::this_thread::get_id());
  });
  cache_->look_up_blob(Digest::of(blob(1)), [&](const Result<std::string>& found) {
    EXPECT_TRUE(found);
    answered.push_back(std::this_thread::get_id());
  });
  EXPECT_EQ(answered, std::vector(2, std::this_thread::get_id()));
}

TEST_F(KernelCacheTest, ARowWhoseBlobIsGoneIsAMissUntilItIsPutAgain) {
  ASSERT_TRUE(put_all(*cache_, 1));
  std::filesystem::remove(blob_path(dir_.path(), 1));
  EXPECT_EQ(cache_->kernel(key("kernel", 1)).error().code, Code::kNotFound);
  EXPECT_EQ(cache_->program(key("program", 1)).error().code, Code::kNotFound);
  ASSERT_TRUE(put_all(*cache_, 1));
  EXPECT_TRUE(cache_->kernel(key("kernel", 1)));
  EXPECT_TRUE(cache_->program(key("program", 1)));
}

TEST_F(KernelCacheTest, AFullQueueAnswersOverloadedInTurnAndThenRecovers) {
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  cache_->forget(key("kernel", 1), [released](Status) { released.wait(); });
  Status last;
  for (int n = 0; n < 102'000; ++n) cache_->forget(key("kernel", 1), nullptr);
  cache_->forget(key("kernel", 1), [&](Status status) { last = std::move(status); });
  release.set_value();
  cache_->flush();
  ASSERT_FALSE(last);
  EXPECT_EQ(last.error().code, Code::kOverloaded);
  EXPECT_GT(last.error().retry_after_ms, 0);
  EXPECT_TRUE(put_all(*cache_, 1));
}

}  // namespace
}  // namespace kiln
