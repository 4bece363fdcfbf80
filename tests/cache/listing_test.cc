// What a cache lists for people, in parts; looking changes nothing.
#include <gtest/gtest.h>

#include <atomic>

#include "cache/kernel_cache.h"
#include "compiler_core/base/check.h"
#include "tests/cache/samples.h"

namespace kiln {
namespace {

using namespace samples;  // NOLINT: the vocabulary of these tests

class ListingTest : public testing::Test {
 protected:
  ListingTest() {
    CacheOptions options;
    options.now_ms = [this] { return now_ms_.load(); };
    auto opened = KernelCache::open(dir_.path(), std::move(options));
    CHECK(opened.has_value(), "a new cache opens");
    cache_ = *std::move(opened);
    for (int n = 0; n < 5; ++n) {
      EXPECT_TRUE(put_all(*cache_, n));
      cache_->flush();
      now_ms_ += 1'000;
    }
  }
  std::vector<Digest> keys(const ProgramQuery& wanted) {
    const auto list = cache_->list_programs(wanted);
    EXPECT_TRUE(list) << list.error().message;
    total_ = list->total;
    is_partial_ = list->is_partial;
    std::vector<Digest> keys;
    for (const ListedProgram& each : list->programs) keys.push_back(each.key);
    return keys;
  }
  static std::vector<Digest> programs(std::initializer_list<int> numbers) {
    std::vector<Digest> keys;
    for (const int n : numbers) keys.push_back(key("program", n));
    return keys;
  }

  const TempDir dir_ = *TempDir::create("kiln-listing");
  std::atomic<int64_t> now_ms_ = 1'000'000;  // the cache asks from threads of its own
  int64_t total_ = 0;
  bool is_partial_ = false;
  std::unique_ptr<KernelCache> cache_;
};

TEST_F(ListingTest, ListsInTheOrderOfUseInParts) {
  EXPECT_EQ(keys({}), programs({4, 3, 2, 1, 0}));
  EXPECT_EQ(total_, 5);
  EXPECT_EQ(keys({.first = 2, .limit = 2}), programs({2, 1}));
  EXPECT_EQ(total_, 5);
  EXPECT_EQ(keys({.order = ProgramQuery::Order::kOldestUse, .limit = 1}), programs({0}));
  EXPECT_EQ(keys({.order = ProgramQuery::Order::kSize}).size(), 5u);
}

TEST_F(ListingTest, FindsByKeyAndByWhatAManifestSays) {
  EXPECT_EQ(keys({.text = key("program", 3).hex().substr(0, 12)}), programs({3}));
  EXPECT_EQ(keys({.text = key("graph", 2).hex()}), programs({2}));
  EXPECT_EQ(keys({.text = key("kernel", 1).hex()}), programs({1}));
  EXPECT_EQ(keys({.text = "x86-64-v3", .first = 3}), programs({1, 0}));
  EXPECT_EQ(total_, 5);
  EXPECT_EQ(keys({.text = "no such thing"}), programs({}));
  EXPECT_FALSE(is_partial_);
  EXPECT_EQ(keys({.text = "x86-64-v3", .most_searched = 2}), programs({4, 3}));
  EXPECT_TRUE(is_partial_);
}

TEST_F(ListingTest, KnowsWhatIsPinned) {
  EXPECT_TRUE(wait([&](auto done) { cache_->pin(key("program", 1), done); }));
  EXPECT_EQ(keys({.pinned_only = true}), programs({1}));
  EXPECT_EQ(total_, 1);
  EXPECT_TRUE(cache_->listed_program(key("program", 1))->pinned);
  EXPECT_FALSE(cache_->listed_program(key("program", 2))->pinned);
}

TEST_F(ListingTest, LookingIsNoUse) {
  now_ms_ += 100'000;
  EXPECT_TRUE(cache_->listed_program(key("program", 0)));
  EXPECT_TRUE(cache_->listed_kernel(key("kernel", 0)));
  cache_->flush();
  EXPECT_EQ(keys({}), programs({4, 3, 2, 1, 0}));
  EXPECT_EQ(cache_->listed_program(key("program", 9)).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace kiln
