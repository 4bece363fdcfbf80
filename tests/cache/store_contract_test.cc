// Every store gives back what was put. Beside it: measurements and acts (store_contract_records_test.cc),
// room and taking back (store_contract_room_test.cc).
#include "tests/cache/store_contract.h"

#include <algorithm>
#include <thread>

namespace kiln {

using namespace samples;  // NOLINT: the vocabulary of these tests

void StoreContract::expect_all(int n) {
  EXPECT_EQ(look_up_blob(n).value_or(""), blob(n));
  const Result<StoredKernel> stored = store_->kernel(key("kernel", n));
  ASSERT_TRUE(stored) << stored.error().message;
  EXPECT_EQ(stored->kernel, kernel(n).kernel);
  EXPECT_EQ(stored->tuned_on, kernel(n).tuned_on);
  const Result<StoredProgram> found = look_up(n);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(program_from_json(found->manifest).value(), program(n));
}

void StoreContract::expect_none(int n) {
  const auto found = look_up(n);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, Code::kNotFound) << found.error().message;
  const auto stored = store_->kernel(key("kernel", n));
  ASSERT_FALSE(stored);
  EXPECT_EQ(stored.error().code, Code::kNotFound) << stored.error().message;
}

std::set<int> StoreContract::programs(int most) {
  std::set<int> there;
  for (int n = 0; n < most; ++n)
    if (look_up(n)) there.insert(n);
  return there;
}

Result<TakenBack> StoreContract::take_back(const TakeBack& what, int64_t through) {
  auto taken = answer_of<TakenBack>([&](auto then) { store_->take_back(what, through, then); });
  settle();
  return taken;
}

namespace {

TEST_P(StoreContract, AnEmptyStoreHasNothing) {
  expect_none(1);
  EXPECT_EQ(look_up_blob(1).error().code, Code::kNotFound);
  EXPECT_TRUE(store_->records(key("kernel", 1)).value().empty());
  EXPECT_TRUE(store_->earlier_winners(key("workload", 1)).value().empty());
  EXPECT_TRUE(store_->nearest_winners({Digest::of("kin"), {1}}).value().empty());
  EXPECT_TRUE(store_->revocations().value().empty());
  EXPECT_EQ(store_->list_programs({}).value().total, 0);
  EXPECT_EQ(store_->warning(), "");
}

TEST_P(StoreContract, GivesBackWhatWasPutAtOnceAndAfterARestart) {
  ASSERT_TRUE(put_all(*store_, 1));
  expect_all(1);
  open();
  expect_all(1);
}

TEST_P(StoreContract, WhatIsQueuedWhenItClosesIsStored) {
  store_->put_blob(blob(1), nullptr);
  store_->put_kernel(kernel(1), nullptr);
  store_->put_program(program(1), nullptr);
  open();
  expect_all(1);
}

TEST_P(StoreContract, AnswersComeInTheOrderOfTheCallsAndFlushWaitsForAllOfThem) {
  std::vector<int> order;
  for (int n = 0; n < 60; ++n) {
    store_->put_record(record(n), [&, n](Status) { order.push_back(2 * n); });
    store_->put_blob(blob(n % 7), [&, n](Status) { order.push_back(2 * n + 1); });
  }
  store_->flush();
  ASSERT_EQ(order.size(), 120u);
  EXPECT_TRUE(std::ranges::is_sorted(order));
}

TEST_P(StoreContract, ADoneMayPutMore) {
  const Status nested = wait([&](auto done) {
    store_->put_blob(blob(1), [&, done](Status) { store_->put_kernel(kernel(1), done); });
  });
  EXPECT_TRUE(nested);
}

TEST_P(StoreContract, ALaterPutReplacesTheRow) {
  ASSERT_TRUE(put_all(*store_, 1));
  ASSERT_TRUE(put_blob(*store_, 2));
  StoredKernel better = kernel(1);
  better.kernel.schedule = "cpu.pointwise vector=99";
  better.kernel.blob = kernel(2).kernel.blob;
  ASSERT_TRUE(wait([&](auto done) { store_->put_kernel(better, done); }));
  EXPECT_EQ(store_->kernel(key("kernel", 1)).value().kernel, better.kernel);
  Program anew = program(1);
  anew.kernels = {better.kernel};
  ASSERT_TRUE(wait([&](auto done) { store_->put_program(anew, done); }));
  EXPECT_EQ(program_from_json(look_up(1).value().manifest).value(), anew);
  settle();
  EXPECT_EQ(store_->totals().kernels, 1);
  EXPECT_EQ(store_->totals().programs, 1);
}

TEST_P(StoreContract, AProgramIsWhoeversItWasPutFor) {
  ASSERT_TRUE(put_blob(*store_, 1));
  ASSERT_TRUE(put_kernel(*store_, 1));
  for (const char* user : {"ann", "bob"})
    ASSERT_TRUE(
        wait([&](auto done) { store_->put_program(program(1), done, Audience::of_user(user)); }));
  const Audience audience = look_up(1).value().audience;
  EXPECT_TRUE(audience.admits({"ann", "", false}));
  EXPECT_TRUE(audience.admits({"bob", "", false}));
  EXPECT_FALSE(audience.admits({"eve", "", false}));
  EXPECT_TRUE(store_->list_programs({}).value().programs.empty()) << "lists are for everybody";
  EXPECT_EQ(store_->listed_program(key("program", 1)).error().code, Code::kNotFound);
}

TEST_P(StoreContract, ForgetDropsARow) {
  ASSERT_TRUE(put_all(*store_, 1));
  ASSERT_TRUE(forget(key("kernel", 1)));
  EXPECT_EQ(store_->kernel(key("kernel", 1)).error().code, Code::kNotFound);
  EXPECT_TRUE(look_up(1));
  ASSERT_TRUE(forget(key("program", 1)));
  EXPECT_EQ(look_up(1).error().code, Code::kNotFound);
  EXPECT_TRUE(forget(key("program", 1))) << "what is not there may be forgotten";
  ASSERT_TRUE(put_all(*store_, 1));
  expect_all(1);
}

// ---- No row without its blob ----

TEST_P(StoreContract, AKernelWithoutItsBlobIsRefusedAndItsNeighboursAreStored) {
  ASSERT_TRUE(put_all(*store_, 1));
  Status orphan, orphan_program, neighbour;
  store_->put_kernel(kernel(2), [&](Status status) { orphan = std::move(status); });
  store_->put_program(program(2), [&](Status status) { orphan_program = std::move(status); });
  store_->put_record(record(1), [&](Status status) { neighbour = std::move(status); });
  store_->flush();
  ASSERT_FALSE(orphan);
  EXPECT_EQ(orphan.error().code, Code::kUnavailable);
  EXPECT_FALSE(orphan_program);
  EXPECT_TRUE(neighbour);
  EXPECT_EQ(store_->records(key("kernel", 0)).value().size(), 1u);
  expect_none(2);
  expect_all(1);
}

TEST_P(StoreContract, ABlobWhoseBytesAreGoneIsAbsentAndCanBePutAgain) {
  ASSERT_TRUE(put_all(*store_, 1));
  place_->lose(Digest::of(blob(1)));
  EXPECT_EQ(look_up_blob(1).error().code, Code::kNotFound);
  // What the coordinator does then; some stores know by themselves.
  ASSERT_TRUE(forget(key("program", 1)));
  ASSERT_TRUE(forget(key("kernel", 1)));
  expect_none(1);
  ASSERT_TRUE(put_all(*store_, 1));
  expect_all(1);
}

TEST_P(StoreContract, ABlobWithOneFlippedBitIsCorruptOnceThenAbsentThenStoredAgain) {
  ASSERT_TRUE(put_all(*store_, 1));
  place_->damage(Digest::of(blob(1)));
  EXPECT_EQ(look_up_blob(1).error().code, Code::kCorruption);
  settle();
  EXPECT_EQ(store_->totals().corrupt_blobs, 1);
  EXPECT_EQ(look_up_blob(1).error().code, Code::kNotFound);
  expect_none(1);
  ASSERT_TRUE(put_all(*store_, 1));
  expect_all(1);
}

TEST_P(StoreContract, ABlobThatSeveralNeedStaysUntilTheLastOfThemGoes) {
  ASSERT_TRUE(put_all(*store_, 1));
  StoredKernel twin = kernel(1);
  twin.kernel.key = key("kernel", 7);
  ASSERT_TRUE(wait([&](auto done) { store_->put_kernel(twin, done); }));
  TakeBack what;
  what.kernels = {key("kernel", 1)};
  const auto taken = take_back(what);
  ASSERT_TRUE(taken) << taken.error().message;
  EXPECT_TRUE(taken->blobs.empty());
  EXPECT_TRUE(store_->kernel(key("kernel", 7)));
  EXPECT_EQ(look_up_blob(1).value_or(""), blob(1));
}

// ---- For people ----

TEST_P(StoreContract, ListsInTheOrderOfUseInParts) {
  for (int n = 0; n < 5; ++n) {
    ASSERT_TRUE(put_all(*store_, n));
    settle();
    now_ms_ += 2 * kHourMs;
  }
  ASSERT_TRUE(pin(1));
  const auto keys = [&](const ProgramQuery& wanted) {
    const auto list = store_->list_programs(wanted);
    EXPECT_TRUE(list) << list.error().message;
    std::vector<Digest> found;
    for (const ListedProgram& each : list->programs) found.push_back(each.key);
    return found;
  };
  const auto of = [](std::initializer_list<int> numbers) {
    std::vector<Digest> found;
    for (const int n : numbers) found.push_back(key("program", n));
    return found;
  };
  EXPECT_EQ(keys({}), of({4, 3, 2, 1, 0}));
  EXPECT_EQ(keys({.first = 2, .limit = 2}), of({2, 1}));
  EXPECT_EQ(store_->list_programs({.first = 2, .limit = 2}).value().total, 5);
  EXPECT_EQ(keys({.order = ProgramQuery::Order::kOldestUse, .limit = 1}), of({0}));
  EXPECT_EQ(keys({.order = ProgramQuery::Order::kSize}).size(), 5u);
  EXPECT_EQ(keys({.pinned_only = true}), of({1}));
  EXPECT_EQ(keys({.text = key("program", 3).hex().substr(0, 12)}), of({3}));
  EXPECT_EQ(keys({.text = key("kernel", 1).hex()}), of({1}));
  EXPECT_EQ(keys({.text = "x86-64-v3", .first = 3}), of({1, 0}));
  EXPECT_EQ(keys({.text = "no such thing"}), of({}));
  EXPECT_TRUE(store_->list_programs({.text = "x86-64-v3", .most_searched = 2}).value().is_partial);
  EXPECT_EQ(store_->listed_kernel(key("kernel", 2)).value().kernel, kernel(2).kernel);
  EXPECT_EQ(store_->listed_kernel(key("kernel", 9)).error().code, Code::kNotFound);
  EXPECT_EQ(store_->listed_program(key("program", 9)).error().code, Code::kNotFound);
  EXPECT_EQ(keys({}), of({4, 3, 2, 1, 0})) << "looking is no use";
}

// ---- Threads ----

TEST_P(StoreContract, ReadersAndWritersDoNotDisturbEachOther) {
  constexpr int kPrograms = 24;
  std::atomic<int> stored{0};  // programs 0 .. stored-1 were answered as stored
  std::vector<std::thread> readers;
  for (int thread = 0; thread < 3; ++thread)
    readers.emplace_back([&, thread] {
      for (int n = thread; stored < kPrograms; n = (n + 7) % kPrograms) {
        const bool must_be_there = n < stored;
        const auto found = look_up(n);
        EXPECT_TRUE(found || !must_be_there) << n << found.error().message;
        if (!found) continue;
        EXPECT_EQ(program_from_json(found->manifest).value(), program(n));
        EXPECT_EQ(look_up_blob(n).value_or(""), blob(n));
        EXPECT_TRUE(store_->kernel(key("kernel", n)));
        EXPECT_LE(store_->records(key("kernel", 0)).value().size(), size_t{kPrograms});
      }
    });
  for (int n = 0; n < kPrograms; ++n) {
    store_->put_record(record(n), nullptr);
    store_->put_blob(blob(n), nullptr);
    store_->put_kernel(kernel(n), nullptr);
    store_->put_program(program(n), [&](Status status) {
      EXPECT_TRUE(status) << status.error().message;
      ++stored;
    });
  }
  for (std::thread& reader : readers) reader.join();
  store_->flush();
  EXPECT_EQ(store_->totals().programs, kPrograms);
}

}  // namespace
}  // namespace kiln
