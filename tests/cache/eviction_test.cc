// A cache of bounded size: who goes, in which order, and what stays whatever happens.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <set>

#include "cache/index.h"
#include "cache/sqlite.h"
#include "tests/cache/samples.h"

namespace kiln {
namespace {

using namespace samples;  // NOLINT: the vocabulary of these tests

class EvictionTest : public ::testing::Test {
 protected:
  void open(int64_t max_bytes, int64_t keep_used_ms = 0) {
    cache_.reset();
    CacheOptions options;
    options.max_bytes = max_bytes;
    options.keep_used_ms = keep_used_ms;
    options.touch_every_ms = 3'600'000;  // flush() writes them down
    options.now_ms = [this] { return now_ms_ += step_ms_; };
    options.evicted = [this](const std::vector<Digest>& programs) {
      evicted_.insert(programs.begin(), programs.end());
    };
    auto opened = KernelCache::open(dir_.path(), std::move(options));
    ASSERT_TRUE(opened) << opened.error().message;
    cache_ = *std::move(opened);
    settle();
  }
  // Trimming goes on behind the writes, a step after another.
  void settle() {
    for (int i = 0; i < 12; ++i) cache_->flush();
  }
  // Program n with its kernel and blob, used now; then the clock goes on.
  Status put(int n) {
    Status status = put_all(*cache_, n);
    settle();
    ++now_ms_;
    return status;
  }
  void use(int n) {
    EXPECT_TRUE(cache_->program(key("program", n))) << n;
    ++now_ms_;
    cache_->flush();
  }
  bool has_program(int n) { return entry({EntryKind::kProgram, key("program", n)}); }
  bool has_kernel(int n) { return entry({EntryKind::kKernel, key("kernel", n)}); }
  bool has_blob(int n) {
    const bool row = entry({EntryKind::kBlob, Digest::of(blob(n))});
    EXPECT_EQ(row, std::filesystem::exists(blob_path(dir_.path(), n))) << "blob " << n;
    return row;
  }
  bool entry(const EntryId& id) {  // without using it
    return CacheIndex::open_for_reading(file()).value().entry(id).has_value();
  }
  Path file() const { return dir_.path() / "index.sqlite"; }
  int64_t stored() const { return cache_->totals().stored_bytes; }

  TempDir dir_ = TempDir::create("kiln-evict").value();
  std::atomic<int64_t> now_ms_{1'000'000};
  std::atomic<int64_t> step_ms_{0};  // passes whenever somebody looks at the clock
  std::set<Digest> evicted_;         // the writer's thread; read after settle()
  std::unique_ptr<KernelCache> cache_;
};

TEST_F(EvictionTest, WithoutABoundNothingGoes) {
  open(0);
  for (int n = 1; n <= 20; ++n) ASSERT_TRUE(put(n));
  EXPECT_EQ(cache_->totals().programs, 20);
  EXPECT_EQ(cache_->totals().evicted, 0);
}

// The first of a program whose last ones are still being tuned.
TEST_F(EvictionTest, AKernelThatAProgramNeedsLaterStaysWhileItIsTouched) {
  open(0);
  ASSERT_TRUE(put_blob(*cache_, 1) && put_kernel(*cache_, 1));
  for (int n : {2, 3}) ASSERT_TRUE(put(n));
  cache_->touch_kernel(key("kernel", 1));
  cache_->flush();
  open(stored() - 1);
  ASSERT_TRUE(put(4));
  EXPECT_FALSE(has_program(2));
  EXPECT_TRUE(has_kernel(1));
  EXPECT_TRUE(put_program(*cache_, 1));
}

TEST_F(EvictionTest, TheLeastRecentlyUsedProgramGoesWithItsKernelAndBlob) {
  open(0);
  for (int n = 1; n <= 4; ++n) ASSERT_TRUE(put(n));
  use(1);          // so 2 is the oldest
  open(stored());  // above the mark to which it trims
  EXPECT_TRUE(has_program(1));
  EXPECT_FALSE(has_program(2));
  EXPECT_FALSE(has_kernel(2));
  EXPECT_FALSE(has_blob(2));
  EXPECT_TRUE(has_program(3));
  EXPECT_TRUE(has_kernel(3));
  EXPECT_TRUE(has_blob(3));
  EXPECT_EQ(evicted_, std::set<Digest>{key("program", 2)});
  EXPECT_EQ(cache_->totals().evicted, 1);
}

TEST_F(EvictionTest, AUseThatNobodyLookedUpCounts) {
  open(0);
  for (int n = 1; n <= 3; ++n) ASSERT_TRUE(put(n));
  cache_->touch(key("program", 1));
  ++now_ms_;
  open(stored());  // closing wrote it down
  EXPECT_TRUE(has_program(1));
  EXPECT_FALSE(has_program(2));
}

TEST_F(EvictionTest, TheBoundHoldsWhileItFills) {
  open(100'000);
  for (int n = 1; n <= 60; ++n) {
    ASSERT_TRUE(put(n)) << n;
    EXPECT_LE(stored(), 100'000);
  }
  EXPECT_GT(cache_->totals().evicted, 40);
  EXPECT_TRUE(cache_->program(key("program", 60)));
}

TEST_F(EvictionTest, WhatAnotherProgramNeedsStaysUntilThatOneGoes) {
  open(0);
  ASSERT_TRUE(put(1));
  ASSERT_TRUE(put(2));
  Program both = program(3);
  both.kernels = {kernel(1).kernel};
  ASSERT_TRUE(wait([&](auto done) { cache_->put_program(both, done); }));
  ++now_ms_;
  const int64_t of_two = stored();
  open(of_two - 1 - static_cast<int64_t>(blob(2).size()));
  EXPECT_FALSE(has_program(1));
  EXPECT_FALSE(has_program(2));
  EXPECT_FALSE(has_blob(2));
  EXPECT_TRUE(has_program(3));
  EXPECT_TRUE(has_kernel(1)) << "3 needs it";
  EXPECT_TRUE(has_blob(1));
  open(1000);
  EXPECT_FALSE(has_program(3));
  EXPECT_FALSE(has_kernel(1));
  EXPECT_FALSE(has_blob(1));
}

TEST_F(EvictionTest, APinnedProgramStaysWithWhatItNeedsUntilItIsUnpinned) {
  open(0);
  for (int n = 1; n <= 3; ++n) ASSERT_TRUE(put(n));
  ASSERT_TRUE(wait([&](auto done) { cache_->pin(key("program", 1), done); }));
  open(1000);
  EXPECT_TRUE(has_program(1));
  EXPECT_TRUE(has_kernel(1));
  EXPECT_TRUE(has_blob(1));
  EXPECT_FALSE(has_program(2));
  EXPECT_FALSE(has_program(3));
  ASSERT_TRUE(wait([&](auto done) { cache_->unpin(key("program", 1), done); }));
  open(1000);
  EXPECT_FALSE(has_program(1));
  EXPECT_FALSE(has_blob(1));
}

TEST_F(EvictionTest, APinOutlivesTheRowItHolds) {
  open(0);
  ASSERT_TRUE(put(1));
  ASSERT_TRUE(wait([&](auto done) { cache_->pin(key("program", 1), done); }));
  ASSERT_TRUE(wait([&](auto done) { cache_->forget(key("program", 1), done); }));
  ASSERT_TRUE(put(1));
  open(1000);
  EXPECT_TRUE(has_program(1));
}

TEST_F(EvictionTest, OnlyWhatIsStoredCanBePinned) {
  open(0);
  const Status pinned = wait([&](auto done) { cache_->pin(key("program", 9), done); });
  ASSERT_FALSE(pinned);
  EXPECT_EQ(pinned.error().code, Code::kNotFound);
  EXPECT_FALSE(wait([&](auto done) { cache_->unpin(key("program", 9), done); }));
}

TEST_F(EvictionTest, WhatHasNoRoomIsRefusedAndNothingElseIsLost) {
  open(60'000, /*keep_used_ms=*/1000);
  ASSERT_TRUE(put_all(*cache_, 1));  // 8 KB; used just now, so it stays
  const Status refused = wait([&](auto done) { cache_->put_blob(std::string(59'000, 'x'), done); });
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnavailable);
  EXPECT_NE(refused.error().message.find("full"), std::string::npos) << refused.error().message;
  EXPECT_TRUE(has_program(1));
  EXPECT_TRUE(has_blob(1));
  now_ms_ += 10'000;
  EXPECT_TRUE(wait([&](auto done) { cache_->put_blob(std::string(59'000, 'x'), done); }));
  settle();
  EXPECT_FALSE(has_program(1));
}

TEST_F(EvictionTest, RecordsAndWinnersOutliveBinaries) {
  open(0);
  ASSERT_TRUE(put(1));
  ASSERT_TRUE(put_record(*cache_, 1));
  ++now_ms_;
  open(1);
  EXPECT_FALSE(has_program(1));
  EXPECT_EQ(cache_->records(record(1).kernel_key).value().size(), 1u);
  EXPECT_EQ(cache_->earlier_winners(key("workload", 1)).value().size(), 1u);
}

TEST_F(EvictionTest, CollectBringsItDownToWhatIsAskedAndSaysHowMuchWent) {
  open(0);
  for (int n = 1; n <= 10; ++n) ASSERT_TRUE(put(n));
  const int64_t before = stored();
  KernelCache::Collected collected;
  ASSERT_TRUE(wait([&](auto done) {
    cache_->collect(before / 2, [&, done](KernelCache::Collected got, Status status) {
      collected = got;
      done(std::move(status));
    });
  }));
  EXPECT_LE(stored(), before / 2);
  EXPECT_EQ(collected.bytes, before - stored());
  EXPECT_GT(collected.programs, 2);
  EXPECT_TRUE(has_program(10));
}

TEST_F(EvictionTest, ABlobPutAgainWhileItIsGivenUpIsThere) {
  open(30'000);
  step_ms_ = 1;  // however late the writer is, what was put later was used later
  for (int round = 0; round < 20; ++round) {
    // In one batch: the large one pushes out what the next puts bring back.
    cache_->put_blob(blob(1), nullptr);
    cache_->put_kernel(kernel(1), nullptr);
    cache_->put_blob(std::string(25'000, static_cast<char>('a' + round)), nullptr);
    cache_->put_blob(blob(1), nullptr);
    Status last = wait([&](auto done) { cache_->put_kernel(kernel(1), done); });
    settle();
    ASSERT_TRUE(last) << last.error().message;
    EXPECT_EQ(cache_->blob(Digest::of(blob(1))).value_or("lost"), blob(1)) << round;
  }
}

// ---- The eviction index, whatever happened ----

struct LedgerState {
  std::vector<std::string> entries;
  IndexTotals totals;
  bool operator==(const LedgerState&) const = default;
};

LedgerState state_of(CacheIndex& index, const Path& file) {
  LedgerState state;
  state.totals = index.totals().value();
  auto db = Database::open(file, Database::Access::kReadOnly).value();
  Query rows(db, "SELECT kind, hex(key), bytes, held, hex(coalesce(blob, x'')) FROM entries");
  while (rows.next().value())
    state.entries.push_back(fmt::format("{} {} {} bytes, held {}, {}", rows.integer(0),
                                        rows.bytes(1), rows.integer(2), rows.integer(3),
                                        rows.bytes(4)));
  return state;
}

// Puts, replacements, removals, pins and evictions in any order leave what a count from the rows
// gives.
TEST(EvictionIndex, IsWhatTheRowsSayAfterAnything) {
  const TempDir dir = TempDir::create("kiln-eviction").value();
  const Path file = dir.path() / "index.sqlite";
  int64_t now_ms = 1000;
  auto index = CacheIndex::open_for_writing(file, [&] { return now_ms; }).value();
  std::mt19937 random(7);
  const auto any = [&](int count) {
    return static_cast<int>(random() % static_cast<unsigned>(count));
  };
  const auto row_of = [&](int n, int kernels) {
    Program made = program(n);
    std::set<Digest> blobs;
    made.kernels.clear();
    for (int i = 0; i < kernels; ++i) made.kernels.push_back(kernel(any(8)).kernel);
    for (const ProgramKernel& one : made.kernels) blobs.insert(one.blob);
    return ProgramRow{program_to_json(made), {blobs.begin(), blobs.end()}};
  };
  for (int step = 0; step < 300; ++step) {
    ++now_ms;
    const int n = any(8);
    ASSERT_TRUE(index.begin());
    ASSERT_TRUE(index.begin_part());
    StoredKernel changed = kernel(n);
    switch (any(8)) {
      case 0:
        ASSERT_TRUE(index.put_blob(Digest::of(blob(n)), 100 + n));
        break;
      case 1:
        if (any(2) == 0) changed.kernel.blob = Digest::of(blob(any(8)));
        ASSERT_TRUE(index.put_kernel({changed.kernel, changed.tuned_on}));
        break;
      case 2:
      case 3:
        ASSERT_TRUE(index.put_program(key("program", n), row_of(n, 1 + any(4))));
        break;
      case 4:
        ASSERT_TRUE(index.remove(any(2) == 0 ? key("program", n) : key("kernel", n)));
        break;
      case 5:
        (void)index.pin(key("program", n));
        break;
      case 6:
        (void)index.unpin(key("program", n));
        break;
      default:
        ASSERT_TRUE(index.evict(any(3000), now_ms - 3, any(6)));
        ASSERT_TRUE(index.put_record(record(n)));
    }
    if (any(5) == 0)
      ASSERT_TRUE(index.undo_part());
    else
      ASSERT_TRUE(index.end_part());
    if (any(7) == 0)
      index.roll_back();
    else
      ASSERT_TRUE(index.commit());
    if (step % 20 != 0) continue;
    const LedgerState kept = state_of(index, file);
    ASSERT_TRUE(index.begin());
    ASSERT_TRUE(index.rebuild_entries());
    ASSERT_TRUE(index.commit());
    ASSERT_EQ(kept.entries, state_of(index, file).entries) << "step " << step;
    ASSERT_TRUE(kept.totals == state_of(index, file).totals) << "step " << step;
  }
}

}  // namespace
}  // namespace kiln
