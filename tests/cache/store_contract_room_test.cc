// Every store makes room, and takes back what was wrong.
#include "tests/cache/store_contract.h"

namespace kiln {

using namespace samples;  // NOLINT: the vocabulary of these tests

namespace {

TEST_P(StoreContract, CollectEvictsWhatWasNotUsedForTheLongest) {
  for (int n = 1; n <= 6; ++n) {
    ASSERT_TRUE(put_all(*store_, n));
    settle();
    now_ms_ += 2 * kHourMs;
  }
  store_->touch(key("program", 1));
  settle();
  now_ms_ += 2 * kHourMs;
  const int64_t before = store_->totals().stored_bytes;
  Store::Collected collected;
  ASSERT_TRUE(wait([&](auto done) {
    store_->collect(before / 2, [&, done](Store::Collected got, Status status) {
      collected = got;
      done(std::move(status));
    });
  }));
  settle();
  const int64_t left = store_->totals().stored_bytes;
  EXPECT_LE(left, before / 2);
  EXPECT_EQ(collected.bytes, before - left);
  EXPECT_EQ(collected.programs, std::ssize(evicted_));
  EXPECT_EQ(store_->totals().evicted, collected.programs);
  const std::set<int> there = programs();
  EXPECT_TRUE(there.contains(1)) << "it was used since";
  EXPECT_FALSE(there.contains(2));
  EXPECT_TRUE(there.contains(6));
  for (int n = 1; n <= 6; ++n) {
    if (there.contains(n)) {
      expect_all(n);
    } else {
      expect_none(n);
      EXPECT_TRUE(evicted_.contains(key("program", n)));
    }
  }
}

TEST_P(StoreContract, APinnedProgramStaysWithWhatItNeedsUntilItIsUnpinned) {
  for (int n = 1; n <= 3; ++n) ASSERT_TRUE(put_all(*store_, n));
  ASSERT_TRUE(put_record(*store_, 1));
  ASSERT_TRUE(pin(1));
  EXPECT_TRUE(pin(1)) << "again is fine";
  EXPECT_TRUE(store_->listed_program(key("program", 1)).value().pinned);
  now_ms_ += 2 * kHourMs;
  const auto collect_all = [&] {
    return wait([&](auto done) {
      store_->collect(0, [done](Store::Collected, Status status) { done(std::move(status)); });
    });
  };
  const Status stuck = collect_all();
  ASSERT_FALSE(stuck);
  EXPECT_EQ(stuck.error().code, Code::kUnavailable);
  EXPECT_NE(stuck.error().message.find("pinned"), std::string::npos) << stuck.error().message;
  expect_all(1);
  expect_none(2);
  open();
  ASSERT_TRUE(unpin(1));
  EXPECT_EQ(unpin(1).error().code, Code::kNotFound);
  now_ms_ += 2 * kHourMs;
  EXPECT_TRUE(collect_all());
  settle();  // bytes go behind their rows
  expect_none(1);
  EXPECT_EQ(look_up_blob(1).error().code, Code::kNotFound);
  EXPECT_EQ(store_->records(key("kernel", 0)).value().size(), 1u) << "records outlive binaries";
  EXPECT_EQ(store_->earlier_winners(key("workload", 1)).value().size(), 1u);
}

TEST_P(StoreContract, OnlyWhatIsStoredCanBePinned) {
  EXPECT_EQ(pin(9).error().code, Code::kNotFound);
  EXPECT_EQ(unpin(9).error().code, Code::kNotFound);
}

TEST_P(StoreContract, TheBoundHoldsWhileItFills) {
  open(100'000);
  for (int n = 1; n <= 12; ++n) {
    ASSERT_TRUE(put_all(*store_, n)) << n;
    settle();
    EXPECT_LE(store_->totals().stored_bytes, 100'000);
    now_ms_ += 2 * kHourMs;
  }
  EXPECT_GT(store_->totals().evicted, 4);
  expect_all(12);
  expect_none(1);
}

TEST_P(StoreContract, WhatHasNoRoomIsRefusedAndNothingElseIsLost) {
  open(60'000, /*keep_used_ms=*/kHourMs);
  ASSERT_TRUE(put_all(*store_, 1));  // 8 KB, used just now
  settle();
  const auto put_large = [&] {
    return wait([&](auto done) { store_->put_blob(std::string(59'000, 'x'), done); });
  };
  const Status refused = put_large();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnavailable);
  EXPECT_NE(refused.error().message.find("full"), std::string::npos) << refused.error().message;
  expect_all(1);
  now_ms_ += 3 * kHourMs;
  EXPECT_TRUE(put_large());
  expect_none(1);
}

// ---- Taking back ----

// A kernel that is wrong is taken back, and its records say which candidate was.
TEST_P(StoreContract, AKernelIsTakenBackAndItsRecordsStayWhereThatIsAsked) {
  ASSERT_TRUE(put_all(*store_, 1));
  TuningRecord of_one = record(1);
  of_one.kernel_key = key("kernel", 1);
  ASSERT_TRUE(wait([&](auto done) { store_->put_record(of_one, done); }));
  TakeBack what;
  what.kernels = {key("kernel", 1)};
  what.keep_records = true;
  const auto found = answer_of<TakenBack>([&](auto then) { store_->would_take_back(what, then); });
  EXPECT_EQ(found.value().records, 0);
  const auto taken = take_back(what);
  ASSERT_TRUE(taken) << taken.error().message;
  EXPECT_EQ(taken->records, 0);
  EXPECT_EQ(store_->kernel(key("kernel", 1)).error().code, Code::kNotFound);
  EXPECT_EQ(programs(), (std::set<int>{}));
  EXPECT_EQ(store_->records(key("kernel", 1)).value().size(), 1u);
  EXPECT_EQ(store_->revocations().value().size(), 1u);
}

TEST_P(StoreContract, AKernelIsTakenBackWithItsRecordsAndEveryProgramThatContainsIt) {
  for (const int n : {1, 2}) ASSERT_TRUE(put_all(*store_, n));
  Program both = program(3);
  both.kernels = {kernel(1).kernel, kernel(2).kernel};
  ASSERT_TRUE(wait([&](auto done) { store_->put_program(both, done); }));
  TuningRecord of_one = record(1);
  of_one.kernel_key = key("kernel", 1);
  ASSERT_TRUE(wait([&](auto done) { store_->put_record(of_one, done); }));
  ASSERT_TRUE(put_record(*store_, 2));
  ASSERT_TRUE(pin(1)) << "pins hold nothing";
  TakeBack what;
  what.kernels = {key("kernel", 1)};
  const auto found = answer_of<TakenBack>([&](auto then) { store_->would_take_back(what, then); });
  EXPECT_EQ(found.value().programs.size(), 2u);
  EXPECT_EQ(programs(), (std::set<int>{1, 2, 3})) << "looking changes nothing";
  const auto taken = take_back(what);
  ASSERT_TRUE(taken) << taken.error().message;
  EXPECT_EQ(std::set(taken->programs.begin(), taken->programs.end()),
            (std::set{key("program", 1), key("program", 3)}));
  EXPECT_EQ(taken->kernels, what.kernels);
  EXPECT_EQ(taken->records, 1);
  EXPECT_EQ(taken->blobs, (std::vector{Digest::of(blob(1))}));
  EXPECT_EQ(taken->bytes, std::ssize(blob(1)));
  for (const int round : {1, 2}) {
    EXPECT_EQ(programs(), (std::set<int>{2})) << round;
    EXPECT_EQ(store_->kernel(key("kernel", 1)).error().code, Code::kNotFound);
    EXPECT_EQ(look_up_blob(1).error().code, Code::kNotFound);
    EXPECT_TRUE(store_->records(key("kernel", 1)).value().empty());
    EXPECT_EQ(store_->records(key("kernel", 0)).value().size(), 1u);
    const auto revoked = store_->revocations().value();
    ASSERT_EQ(revoked.size(), 1u);
    EXPECT_EQ(revoked[0].kind, Revocation::Kind::kKernel);
    EXPECT_EQ(revoked[0].key, key("kernel", 1));
    EXPECT_EQ(revoked[0].through, 100);
    open();
  }
  ASSERT_TRUE(put_all(*store_, 1));
  expect_all(1);
}

TEST_P(StoreContract, AProgramIsTakenBackWithItsKernelsAndRevokedThoughItIsNotStored) {
  for (const int n : {1, 2}) ASSERT_TRUE(put_all(*store_, n));
  TakeBack what;
  what.programs = {key("program", 1), key("program", 9)};
  ASSERT_TRUE(take_back(what));
  expect_none(1);
  expect_all(2);
  EXPECT_EQ(store_->revocations().value().size(), 3u) << "two programs and a kernel";
}

TEST_P(StoreContract, AWorkersReportsAreTakenBackWithTheKernelsItHadAPartIn) {
  for (const int n : {1, 2, 3}) ASSERT_TRUE(put_all(*store_, n));
  const auto report = [&](int n, const char* worker, const char* owner, int64_t at_ms) {
    TuningRecord made = record(n);
    made.kernel_key = key("kernel", n);
    made.worker = worker;
    made.owner = owner;
    made.taken_at_ms = at_ms;
    ASSERT_TRUE(wait([&](auto done) { store_->put_record(made, done); }));
  };
  report(1, "honest", "", 1'000);
  report(2, "honest", "", 1'000);
  report(2, "evil", "", 5'000);
  report(3, "w", "box", 9'000);
  StoredKernel built = kernel(1);
  built.kernel.provenance.built = {"ev\"il", "box"};
  TakeBack what;
  what.worker = "evil";
  auto taken = take_back(what);
  ASSERT_TRUE(taken) << taken.error().message;
  EXPECT_EQ(taken->records, 1);
  EXPECT_EQ(programs(), (std::set<int>{1, 3}));
  EXPECT_EQ(store_->records(key("kernel", 2)).value().size(), 1u) << "honest's";
  what = {};
  what.owner = "box";
  what.until_ms = 8'000;
  EXPECT_EQ(take_back(what).value().records, 0) << "its reports are later";
  what.until_ms = 9'000;
  EXPECT_EQ(take_back(what).value().records, 1);
  EXPECT_EQ(programs(), (std::set<int>{1}));
  // A kernel whose records are gone is found by its provenance.
  ASSERT_TRUE(wait([&](auto done) { store_->put_kernel(built, done); }));
  what = {};
  what.worker = "ev\"il";
  EXPECT_EQ(take_back(what).value().kernels, (std::vector{key("kernel", 1)}));
}

}  // namespace
}  // namespace kiln
