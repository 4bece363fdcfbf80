// What a cache lists for people, in parts; looking changes nothing.
#include <gtest/gtest.h>

#include <atomic>

#include "cache/index.h"
#include "cache/kernel_cache.h"
#include "compiler_core/base/check.h"
#include "tests/cache/samples.h"

namespace kiln {
namespace {

using namespace samples;  // NOLINT: the vocabulary of these tests

class ListingTest : public ::testing::Test {
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

TEST_F(ListingTest, TheTuningLogIsReadInPagesAndFiltered) {
  for (int n = 0; n < 7; ++n) ASSERT_TRUE(put_record(*cache_, n));
  TuningRecord other = record(1);
  other.kernel_key = key("kernel", 77);
  other.worker = "worker-2";
  other.schedule.template_name = "cpu.other";
  ASSERT_TRUE(wait([&](auto done) { cache_->put_record(other, done); }));
  CacheIndex index = CacheIndex::open_for_reading(dir_.path() / "index.sqlite").value();

  std::vector<ListedRecord> all;
  RecordQuery page;
  page.limit = 3;
  for (int pages = 0; pages < 9; ++pages) {
    const RecordList read = index.list_records(page).value();
    EXPECT_LE(read.records.size(), 3u);
    EXPECT_EQ(read.damaged, 0);
    all.insert(all.end(), read.records.begin(), read.records.end());
    if (read.last_id == 0) break;
    page.after = read.last_id;
  }
  ASSERT_EQ(all.size(), 8u);
  for (int n = 0; n < 7; ++n) {
    const ListedRecord& listed = all[static_cast<size_t>(n)];
    EXPECT_EQ(listed.record.schedule.to_string(), record(n).schedule.to_string());
    EXPECT_EQ(listed.won, listed.record.schedule.to_string() == kernel(0).kernel.schedule) << n;
  }
  EXPECT_FALSE(all[7].won.has_value()) << "no such kernel is stored";

  const auto count = [&](auto set) {
    RecordQuery wanted;
    set(wanted);
    return index.list_records(wanted).value().records.size();
  };
  EXPECT_EQ(count([](auto& q) { q.worker = "worker-2"; }), 1u);
  EXPECT_EQ(count([](auto& q) { q.template_name = "cpu.pointwise"; }), 7u);
  EXPECT_EQ(count([](auto& q) { q.kernel = key("kernel", 77); }), 1u);
  EXPECT_EQ(count([](auto& q) { q.program = key("program", 0); }), 7u);
  EXPECT_EQ(count([](auto& q) { q.since_ms = 1'700'000'000'005; }), 2u);
  RecordQuery unknown;
  unknown.program = key("program", 33);
  EXPECT_EQ(index.list_records(unknown).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace kiln
