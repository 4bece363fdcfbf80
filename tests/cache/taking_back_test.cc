// What is taken back is gone: rows, records, files, and whatever was made with it, also after a
// restart; and nothing else is.
#include "cache/taking_back.h"

#include <gtest/gtest.h>

#include "tests/cache/samples.h"

namespace kiln {
namespace {

using namespace samples;  // NOLINT: the vocabulary of these tests

class TakingBack : public ::testing::Test {
 protected:
  void SetUp() override {
    open();
    for (int n : {1, 2, 3}) ASSERT_TRUE(put_all(*cache_, n));
    Program both = program(4);  // of kernels 1 and 2
    both.kernels = {kernel(1).kernel, kernel(2).kernel};
    ASSERT_TRUE(wait([&](auto done) { cache_->put_program(both, done); }));
    for (int n : {1, 2, 3})
      for (const char* worker : {"honest", "other"}) put_record(n, worker, "", 1'000 * n);
  }
  void open() {
    cache_.reset();
    cache_ = KernelCache::open(dir_.path()).value();
  }
  void put_record(int kernel, const std::string& worker, const std::string& owner, int64_t at_ms) {
    TuningRecord record = samples::record(kernel);
    record.kernel_key = key("kernel", kernel);
    record.worker = worker;
    record.owner = owner;
    record.taken_at_ms = at_ms;
    ASSERT_TRUE(wait([&](auto done) { cache_->put_record(record, done); }));
  }
  TakenBack take_back(const TakeBack& what, int64_t through = 100) {
    std::promise<Result<TakenBack>> answer;
    cache_->take_back(what, through, [&](Result<TakenBack> taken) { answer.set_value(taken); });
    const auto taken = answer.get_future().get();
    EXPECT_TRUE(taken);
    cache_->flush();
    return taken.value_or(TakenBack{});
  }
  std::set<int> programs() const {
    std::set<int> there;
    for (int n : {1, 2, 3, 4})
      if (cache_->program(key("program", n))) there.insert(n);
    return there;
  }
  std::set<int> kernels() const {
    std::set<int> there;
    for (int n : {1, 2, 3})
      if (cache_->kernel(key("kernel", n))) there.insert(n);
    return there;
  }
  size_t records(int kernel) const { return cache_->records(key("kernel", kernel)).value().size(); }
  static TakeBack of_worker(const std::string& name) {
    TakeBack what;
    what.worker = name;
    return what;
  }

  const TempDir dir_ = TempDir::create("kiln-take-back").value();
  std::unique_ptr<KernelCache> cache_;
};

TEST_F(TakingBack, AKernelGoesWithItsRecordsItsFileAndEveryProgramThatContainsIt) {
  ASSERT_TRUE(wait([&](auto done) { cache_->pin(key("program", 1), done); }))
      << "pins hold nothing";
  TakeBack what;
  what.kernels = {key("kernel", 1)};
  const TakenBack taken = take_back(what);
  EXPECT_EQ(taken.programs.size(), 2u);
  EXPECT_EQ(taken.kernels, what.kernels);
  EXPECT_EQ(taken.records, 2);
  for (int round : {1, 2}) {
    EXPECT_EQ(programs(), (std::set<int>{2, 3})) << round;
    EXPECT_EQ(kernels(), (std::set<int>{2, 3})) << round;
    EXPECT_EQ(records(1), 0u);
    EXPECT_EQ(records(2), 2u);
    EXPECT_FALSE(std::filesystem::exists(blob_path(dir_.path(), 1)));
    EXPECT_TRUE(std::filesystem::exists(blob_path(dir_.path(), 2)));
    EXPECT_EQ(cache_->totals().programs, 2);
    EXPECT_EQ(cache_->totals().records, 4);
    const auto revoked = cache_->revocations().value();
    ASSERT_EQ(revoked.size(), 1u);
    EXPECT_EQ(revoked[0].kind, Revocation::Kind::kKernel);
    EXPECT_EQ(revoked[0].key, key("kernel", 1));
    EXPECT_EQ(revoked[0].through, 100);
    open();
  }
}

TEST_F(TakingBack, AProgramGoesWithItsKernelsAndIsRevokedThoughItIsNotStored) {
  TakeBack what;
  what.programs = {key("program", 4), key("program", 9)};
  take_back(what);
  EXPECT_EQ(programs(), (std::set<int>{3}));
  EXPECT_EQ(kernels(), (std::set<int>{3}));
  EXPECT_EQ(records(2), 0u);
  EXPECT_EQ(cache_->revocations().value().size(), 4u) << "two programs, two kernels";
}

TEST_F(TakingBack, AWorkersReportsGoWithTheKernelsItHadAPartInAndOthersKeepTheirs) {
  put_record(2, "evil", "", 5'000);
  const TakenBack taken = take_back(of_worker("evil"));
  EXPECT_EQ(taken.records, 1);
  EXPECT_EQ(kernels(), (std::set<int>{1, 3}));
  EXPECT_EQ(programs(), (std::set<int>{1, 3}));
  EXPECT_EQ(records(2), 2u) << "honest's and other's";
  EXPECT_TRUE(take_back(of_worker("nobody")).programs.empty());
}

TEST_F(TakingBack, AKernelWhoseRecordsAreGoneIsFoundByItsProvenance) {
  StoredKernel stored = kernel(3);
  stored.kernel.provenance.built = {"ev\"il", "box"};
  ASSERT_TRUE(wait([&](auto done) { cache_->put_kernel(stored, done); }));
  EXPECT_EQ(take_back(of_worker("ev\"il")).kernels, (std::vector{key("kernel", 3)}));
}

TEST_F(TakingBack, WhatAKeyReportedGoesUpToItsRevocation) {
  put_record(1, "w", "box", 5'000);
  put_record(3, "w", "box", 9'000);  // a later key of that name
  TakeBack what;
  what.owner = "box";
  what.until_ms = 6'000;
  EXPECT_EQ(take_back(what).records, 1);
  EXPECT_EQ(kernels(), (std::set<int>{2, 3}));
}

TEST_F(TakingBack, SinceATime) {
  TakeBack what;
  what.since_ms = 2'000;
  EXPECT_EQ(take_back(what).records, 4);
  EXPECT_EQ(kernels(), (std::set<int>{1}));
  EXPECT_EQ(programs(), (std::set<int>{1}));
}

TEST_F(TakingBack, LookingChangesNothing) {
  std::promise<Result<TakenBack>> answer;
  cache_->would_take_back(of_worker("honest"),
                          [&](Result<TakenBack> found) { answer.set_value(found); });
  const TakenBack found = answer.get_future().get().value();
  EXPECT_EQ(found.programs.size(), 4u);
  EXPECT_EQ(found.kernels.size(), 3u);
  EXPECT_EQ(found.records, 3);
  EXPECT_EQ(programs().size(), 4u);
  EXPECT_TRUE(cache_->revocations().value().empty());
}

TEST_F(TakingBack, AFileThatAnotherKernelNeedsStays) {
  StoredKernel twin = kernel(2);
  twin.kernel.key = key("kernel", 7);
  ASSERT_TRUE(wait([&](auto done) { cache_->put_kernel(twin, done); }));
  TakeBack what;
  what.kernels = {key("kernel", 2)};
  EXPECT_TRUE(take_back(what).blobs.empty());
  EXPECT_TRUE(cache_->kernel(key("kernel", 7)));
}

TEST_F(TakingBack, WhatIsTunedAgainIsThere) {
  take_back(of_worker("honest"));
  ASSERT_TRUE(programs().empty());
  ASSERT_TRUE(put_all(*cache_, 1));
  open();
  EXPECT_EQ(programs(), (std::set<int>{1}));
}

}  // namespace
}  // namespace kiln
