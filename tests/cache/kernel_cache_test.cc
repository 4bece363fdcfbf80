#include "cache/kernel_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/cache/samples.h"

namespace kiln {
namespace {

using namespace samples;  // NOLINT: the vocabulary of these tests

class KernelCacheTest : public testing::Test {
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

TEST_F(KernelCacheTest, AnEmptyCacheHasNothing) {
  EXPECT_EQ(cache_->program(key("program", 1)).error().code, Code::kNotFound);
  EXPECT_EQ(cache_->kernel(key("kernel", 1)).error().code, Code::kNotFound);
  EXPECT_EQ(cache_->blob(key("blob", 1)).error().code, Code::kNotFound);
  EXPECT_TRUE(cache_->records(key("kernel", 1)).value().empty());
  EXPECT_TRUE(cache_->earlier_winners(key("workload", 1)).value().empty());
  EXPECT_EQ(cache_->warning(), "");
}

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

void expect_all(KernelCache& cache, int n) {
  EXPECT_EQ(cache.blob(Digest::of(blob(n))).value_or(""), blob(n));
  const Result<StoredKernel> stored = cache.kernel(key("kernel", n));
  ASSERT_TRUE(stored) << stored.error().message;
  EXPECT_EQ(stored->kernel, kernel(n).kernel);
  EXPECT_EQ(stored->tuned_on, kernel(n).tuned_on);
  const Result<std::string> manifest = cache.program(key("program", n));
  ASSERT_TRUE(manifest) << manifest.error().message;
  EXPECT_EQ(program_from_json(*manifest).value(), program(n));
}

TEST_F(KernelCacheTest, GivesBackWhatWasPutAtOnce) {
  ASSERT_TRUE(put_all(*cache_, 1));
  expect_all(*cache_, 1);
}

TEST_F(KernelCacheTest, GivesBackWhatWasPutAfterARestart) {
  ASSERT_TRUE(put_all(*cache_, 1));
  reopen();
  expect_all(*cache_, 1);
}

TEST_F(KernelCacheTest, WhatIsQueuedWhenItClosesIsStored) {
  cache_->put_blob(blob(1), nullptr);
  cache_->put_kernel(kernel(1), nullptr);
  cache_->put_program(program(1), nullptr);
  reopen();
  expect_all(*cache_, 1);
}

TEST_F(KernelCacheTest, FlushWaitsForEverythingPutSoFar) {
  std::atomic<int> done{0};
  for (int n = 0; n < 100; ++n) cache_->put_record(record(n), [&](Status) { ++done; });
  cache_->flush();
  EXPECT_EQ(done, 100);
}

TEST_F(KernelCacheTest, AnswersComeInTheOrderOfTheCalls) {
  std::vector<int> order;
  for (int n = 0; n < 100; ++n)
    cache_->put_record(record(n), [&, n](Status) { order.push_back(n); });
  cache_->flush();
  ASSERT_EQ(order.size(), 100u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST_F(KernelCacheTest, ADoneMayPutMore) {
  const Status nested = wait([&](auto done) {
    cache_->put_blob(blob(1), [&, done](Status) { cache_->put_kernel(kernel(1), done); });
  });
  EXPECT_TRUE(nested);
}

TEST_F(KernelCacheTest, ASecondOpenOfTheDirectoryIsRefusedAndNamesIt) {
  const auto second = KernelCache::open(dir_.path());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
  EXPECT_NE(second.error().message.find(dir_.path().string()), std::string::npos);
  cache_.reset();
  EXPECT_TRUE(KernelCache::open(dir_.path()));
}

TEST_F(KernelCacheTest, ALaterPutReplacesTheRow) {
  ASSERT_TRUE(put_all(*cache_, 1));
  StoredKernel better = kernel(1);
  better.kernel.schedule = "cpu.pointwise vector=99";
  ASSERT_TRUE(wait([&](auto done) { cache_->put_kernel(better, done); }));
  EXPECT_EQ(cache_->kernel(key("kernel", 1)).value().kernel, better.kernel);
  EXPECT_EQ(cache_->totals().kernels, 1);
}

TEST_F(KernelCacheTest, ForgetDropsARow) {
  ASSERT_TRUE(put_all(*cache_, 1));
  ASSERT_TRUE(wait([&](auto done) { cache_->forget(key("kernel", 1), done); }));
  EXPECT_EQ(cache_->kernel(key("kernel", 1)).error().code, Code::kNotFound);
  EXPECT_TRUE(cache_->program(key("program", 1)));
  ASSERT_TRUE(wait([&](auto done) { cache_->forget(key("program", 1), done); }));
  EXPECT_EQ(cache_->program(key("program", 1)).error().code, Code::kNotFound);
}

// ---- Invariant 1: no row without its blob ----

TEST_F(KernelCacheTest, AKernelWithoutItsBlobIsRefusedAndItsNeighboursAreStored) {
  ASSERT_TRUE(put_all(*cache_, 1));
  Status orphan, orphan_program, neighbour;
  cache_->put_kernel(kernel(2), [&](Status status) { orphan = std::move(status); });
  cache_->put_program(program(2), [&](Status status) { orphan_program = std::move(status); });
  cache_->put_record(record(1), [&](Status status) { neighbour = std::move(status); });
  cache_->flush();
  ASSERT_FALSE(orphan);
  EXPECT_EQ(orphan.error().code, Code::kUnavailable);
  EXPECT_FALSE(orphan_program);
  EXPECT_TRUE(neighbour);
  EXPECT_EQ(cache_->records(key("kernel", 0)).value().size(), 1u);
  EXPECT_EQ(cache_->totals().kernels, 1);
}

TEST_F(KernelCacheTest, ARowWhoseBlobIsGoneIsAMissUntilItIsPutAgain) {
  ASSERT_TRUE(put_all(*cache_, 1));
  std::filesystem::remove(blob_path(dir_.path(), 1));
  EXPECT_EQ(cache_->kernel(key("kernel", 1)).error().code, Code::kNotFound);
  EXPECT_EQ(cache_->program(key("program", 1)).error().code, Code::kNotFound);
  ASSERT_TRUE(put_all(*cache_, 1));
  expect_all(*cache_, 1);
}

TEST_F(KernelCacheTest, ABlobWithOneFlippedBitIsCorruptOnceThenAMissThenStoredAgain) {
  ASSERT_TRUE(put_all(*cache_, 1));
  flip_one_bit(blob_path(dir_.path(), 1));
  EXPECT_EQ(cache_->blob(Digest::of(blob(1))).error().code, Code::kCorruption);
  EXPECT_EQ(cache_->totals().corrupt_blobs, 1);
  EXPECT_EQ(cache_->blob(Digest::of(blob(1))).error().code, Code::kNotFound);
  EXPECT_EQ(cache_->kernel(key("kernel", 1)).error().code, Code::kNotFound);
  EXPECT_EQ(cache_->program(key("program", 1)).error().code, Code::kNotFound);
  ASSERT_TRUE(put_all(*cache_, 1));
  expect_all(*cache_, 1);
}

// ---- Tuning records ----

bool same(const TuningRecord& a, const TuningRecord& b) {
  return a.kernel_key == b.kernel_key && a.workload == b.workload && a.target == b.target &&
         a.schedule == b.schedule && a.verdict == b.verdict && a.log == b.log &&
         a.measurement.samples_us == b.measurement.samples_us && a.binary == b.binary &&
         a.worker == b.worker && a.taken_at_ms == b.taken_at_ms && a.seed == b.seed &&
         a.sentinel_us == b.sentinel_us;
}

TEST_F(KernelCacheTest, RecordsComeBackWholeAndInOrderAlsoAfterARestart) {
  for (int n = 0; n < 20; ++n) cache_->put_record(record(n), nullptr);
  TuningRecord other = record(1);
  other.kernel_key = key("kernel", 7);
  cache_->put_record(other, nullptr);
  reopen();
  const auto records = cache_->records(key("kernel", 0)).value();
  ASSERT_EQ(records.size(), 20u);
  for (int n = 0; n < 20; ++n) EXPECT_TRUE(same(records[static_cast<size_t>(n)], record(n))) << n;
  EXPECT_EQ(cache_->totals().records, 21);
}

TEST_F(KernelCacheTest, ARecordOfNothingCompiledRoundTrips) {
  TuningRecord failed = record(3);
  failed.verdict = Verdict::kCompileFailed;
  failed.binary = {};
  failed.measurement = {};
  failed.log = std::string("log with \0 and \xff", 16);
  ASSERT_TRUE(wait([&](auto done) { cache_->put_record(failed, done); }));
  const auto records = cache_->records(failed.kernel_key).value();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_TRUE(same(records[0], failed));
}

// A worker reports a result again until it hears that it is stored.
TEST_F(KernelCacheTest, TheSameRecordAgainIsKeptOnce) {
  ASSERT_TRUE(put_record(*cache_, 1));
  ASSERT_TRUE(put_record(*cache_, 2));
  ASSERT_TRUE(put_record(*cache_, 1));
  const auto records = cache_->records(key("kernel", 0)).value();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_TRUE(same(records[0], record(1)));
}

TEST_F(KernelCacheTest, EarlierWinnersAreNewestFirstAndOutliveTheirKernel) {
  ASSERT_TRUE(put_blob(*cache_, 1));
  const auto win = [&](int vector, int generation) {
    StoredKernel winner = kernel(1);
    winner.kernel.key = key("generation", generation);
    winner.kernel.schedule = fmt::format("cpu.pointwise vector={}", vector);
    ASSERT_TRUE(wait([&](auto done) { cache_->put_kernel(winner, done); }));
  };
  win(4, 1);
  win(8, 2);
  win(4, 3);  // wins again
  win(16, 3);
  ASSERT_TRUE(wait([&](auto done) { cache_->forget(key("generation", 2), done); }));
  std::vector<std::string> schedules;
  const std::vector<Schedule> winners = cache_->earlier_winners(key("workload", 1)).value();
  for (const Schedule& schedule : winners) schedules.push_back(schedule.to_string());
  EXPECT_EQ(schedules,
            (std::vector<std::string>{"cpu.pointwise vector=16", "cpu.pointwise vector=4",
                                      "cpu.pointwise vector=8"}));
}

TEST_F(KernelCacheTest, WinnersOfKinComeByTheDistanceOfTheirSizes) {
  const Digest kin = Digest::of("kin");
  for (const int n : {1, 2, 3, 4}) {
    ASSERT_TRUE(wait([&](auto done) { cache_->put_blob(blob(n), done); }));
    StoredKernel stored = kernel(n);
    if (n == 4) stored.kernel.report.best_us = 0;  // a guess
    ASSERT_TRUE(wait([&](auto done) { cache_->put_kernel(stored, done); }));
    const Digest own = n == 3 ? Digest::of("other kin") : kin;
    ASSERT_TRUE(wait([&](auto done) {
      cache_->put_shape_generic_key(key("workload", n), {own, {1024, 64 * n}}, done);
    }));
  }
  const auto winners = [&](std::vector<int64_t> sizes) {
    std::vector<std::string> schedules;
    const std::vector<Schedule> found = cache_->nearest_winners({kin, std::move(sizes)}).value();
    for (const Schedule& schedule : found) schedules.push_back(schedule.to_string());
    return schedules;
  };
  const std::string first = kernel(1).kernel.schedule, second = kernel(2).kernel.schedule;
  EXPECT_EQ(winners({1024, 65}), (std::vector<std::string>{first, second}));
  EXPECT_EQ(winners({1024, 200}), (std::vector<std::string>{second, first}));
  EXPECT_TRUE(winners({1024}).empty());
}

TEST_F(KernelCacheTest, TotalsCountWhatIsStored) {
  ASSERT_TRUE(put_all(*cache_, 1));
  ASSERT_TRUE(put_all(*cache_, 2));
  ASSERT_TRUE(put_blob(*cache_, 1));
  ASSERT_TRUE(put_record(*cache_, 1));
  const KernelCache::Totals totals = cache_->totals();
  EXPECT_EQ(totals.programs, 2);
  EXPECT_EQ(totals.kernels, 2);
  EXPECT_EQ(totals.records, 1);
  EXPECT_EQ(totals.bytes, static_cast<int64_t>(blob(1).size() + blob(2).size()));
  EXPECT_EQ(totals.corrupt_blobs, 0);
}

// ---- Bounds and threads ----

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

TEST_F(KernelCacheTest, ReadersAndWritersDoNotDisturbEachOther) {
  constexpr int kPrograms = 60;
  std::atomic<int> stored{0};  // programs 0 .. stored-1 were answered as stored
  std::vector<std::thread> readers;
  for (int thread = 0; thread < 3; ++thread)
    readers.emplace_back([&, thread] {
      for (int n = thread; stored < kPrograms; n = (n + 7) % kPrograms) {
        const bool must_be_there = n < stored;
        const Result<std::string> manifest = cache_->program(key("program", n));
        EXPECT_TRUE(manifest || !must_be_there) << n;
        if (!manifest) continue;
        EXPECT_EQ(program_from_json(*manifest).value(), program(n));
        EXPECT_EQ(cache_->blob(Digest::of(blob(n))).value_or(""), blob(n));
        EXPECT_TRUE(cache_->kernel(key("kernel", n)));
        EXPECT_LE(cache_->records(key("kernel", 0)).value().size(), size_t{kPrograms});
        EXPECT_GE(cache_->totals().programs, 1);
      }
    });
  std::thread recorder([&] {
    for (int n = 0; n < kPrograms; ++n) cache_->put_record(record(n), nullptr);
  });
  for (int n = 0; n < kPrograms; ++n) {
    cache_->put_blob(blob(n), nullptr);
    cache_->put_kernel(kernel(n), nullptr);
    cache_->put_program(program(n), [&](Status status) {
      EXPECT_TRUE(status);
      ++stored;
    });
  }
  recorder.join();
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(cache_->totals().programs, kPrograms);
}

}  // namespace
}  // namespace kiln
