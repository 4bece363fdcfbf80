// What every store promises, whatever it is made of.
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

AdminAct an_act(const std::string& request) {
  return {0, 1'000, "tcp://a:7557", "ops", request, true, "{}"};
}
std::vector<AdminAct> acts_of(Store& store, int64_t before, int64_t limit) {
  return answer_of<std::vector<AdminAct>>([&](auto then) { store.list_acts(before, limit, then); })
      .value();
}

TEST_P(StoreContract, ActsAreListedTheLatestFirstAndSurvive) {
  for (const char* request : {"drain gpu7", "cancel 12", "drain \xff"})
    ASSERT_TRUE(wait([&](auto done) { store_->note(an_act(request), done); }));
  open();
  const auto acts = acts_of(*store_, INT64_MAX, 2);
  ASSERT_EQ(acts.size(), 2u);
  EXPECT_EQ(acts[0].request, "drain \xef\xbf\xbd") << "what is no text is mended";
  EXPECT_GT(acts[0].number, acts[1].number);
  const auto earlier = acts_of(*store_, acts[1].number, 10);
  ASSERT_EQ(earlier.size(), 1u);
  AdminAct first = an_act("drain gpu7");
  first.number = earlier[0].number;
  EXPECT_EQ(earlier[0], first);
}

TEST_P(StoreContract, AnActIsNotedWithItsWriteOrNotAtAll) {
  ASSERT_TRUE(put_all(*store_, 1));
  const auto pin = [&](int n) {
    return wait([&](auto done) { store_->pin(key("program", n), done, an_act("pin")); });
  };
  ASSERT_TRUE(pin(1));
  EXPECT_EQ(pin(9).error().code, Code::kNotFound);
  ASSERT_TRUE(wait([&](auto done) { store_->unpin(key("program", 1), done, an_act("unpin")); }));
  TakeBack what;
  what.programs = {key("program", 1)};
  const auto taken = answer_of<TakenBack>(
      [&](auto done) { store_->take_back(what, 100, done, an_act("forget")); });
  ASSERT_TRUE(taken);
  const auto acts = acts_of(*store_, INT64_MAX, 10);
  ASSERT_EQ(acts.size(), 3u);
  EXPECT_EQ(acts[0].request, "forget");
  EXPECT_NE(acts[0].outcome.find("\"programs\":1"), std::string::npos) << acts[0].outcome;
  EXPECT_EQ(acts[1].request, "unpin");
  EXPECT_EQ(acts[2].request, "pin");
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

// ---- What tuning left ----

bool same(const TuningRecord& a, const TuningRecord& b) {
  return a.kernel_key == b.kernel_key && a.workload == b.workload && a.target == b.target &&
         a.schedule == b.schedule && a.verdict == b.verdict && a.log == b.log &&
         a.measurement.samples_us == b.measurement.samples_us && a.binary == b.binary &&
         a.worker == b.worker && a.owner == b.owner && a.taken_at_ms == b.taken_at_ms &&
         a.seed == b.seed && a.sentinel_us == b.sentinel_us &&
         a.template_version == b.template_version;
}

TEST_P(StoreContract, RecordsComeBackWholeAndInOrderAlsoAfterARestart) {
  for (int n = 0; n < 20; ++n) store_->put_record(record(n), nullptr);
  TuningRecord other = record(1);
  other.kernel_key = key("kernel", 7);
  other.owner = "a key";
  store_->put_record(other, nullptr);
  open();
  const auto records = store_->records(key("kernel", 0)).value();
  ASSERT_EQ(records.size(), 20u);
  for (int n = 0; n < 20; ++n) EXPECT_TRUE(same(records[static_cast<size_t>(n)], record(n))) << n;
  EXPECT_TRUE(same(store_->records(key("kernel", 7)).value().at(0), other));
  EXPECT_EQ(store_->totals().records, 21);
}

TEST_P(StoreContract, TheTuningLogIsReadInPagesAndFiltered) {
  ASSERT_TRUE(put_all(*store_, 0));
  for (int n = 0; n < 7; ++n) ASSERT_TRUE(put_record(*store_, n));
  TuningRecord other = record(1);
  other.kernel_key = key("kernel", 7);
  other.worker = "worker-2";
  other.schedule.template_name = "cpu.other";
  ASSERT_TRUE(wait([&](auto done) { store_->put_record(other, done); }));
  const auto list = [&](RecordQuery wanted) {
    return answer_of<RecordList>([&](auto then) { store_->list_records(wanted, then); });
  };
  std::vector<TuningRecord> all;
  RecordQuery page;
  page.limit = 3;
  for (int pages = 0; pages < 9; ++pages) {
    const RecordList read = list(page).value();
    EXPECT_LE(read.records.size(), 3u);
    EXPECT_EQ(read.damaged, 0);
    for (const ListedRecord& each : read.records) all.push_back(each.record);
    if (read.last_id == 0) break;
    page.after = read.last_id;
  }
  ASSERT_EQ(all.size(), 8u);
  for (int n = 0; n < 7; ++n) EXPECT_TRUE(same(all[static_cast<size_t>(n)], record(n))) << n;

  const auto count = [&](auto set) {
    RecordQuery wanted;
    set(wanted);
    return list(wanted).value().records.size();
  };
  EXPECT_EQ(count([](auto& q) { q.worker = "worker-2"; }), 1u);
  EXPECT_EQ(count([](auto& q) { q.template_name = "cpu.pointwise"; }), 7u);
  EXPECT_EQ(count([](auto& q) { q.kernel = key("kernel", 7); }), 1u);
  EXPECT_EQ(count([](auto& q) { q.program = key("program", 0); }), 7u);
  EXPECT_EQ(count([](auto& q) { q.since_ms = 1'700'000'000'005; }), 2u);
  RecordQuery unknown;
  unknown.program = key("program", 3);
  EXPECT_EQ(list(unknown).error().code, Code::kNotFound);

  const RecordList everything = list(RecordQuery{}).value();
  for (const ListedRecord& each : everything.records)
    if (each.record.kernel_key == key("kernel", 7)) {
      EXPECT_FALSE(each.won.has_value()) << "no such kernel is stored";
    } else {
      EXPECT_EQ(each.won, each.record.schedule.to_string() == kernel(0).kernel.schedule);
    }
}

TEST_P(StoreContract, ARecordOfNothingCompiledRoundTrips) {
  TuningRecord failed = record(3);
  failed.verdict = Verdict::kCompileFailed;
  failed.binary = {};
  failed.measurement = {};
  failed.log = std::string("log with \0 and \xff", 16);
  ASSERT_TRUE(wait([&](auto done) { store_->put_record(failed, done); }));
  const auto records = store_->records(failed.kernel_key).value();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_TRUE(same(records[0], failed));
}

// A worker reports a result again until it hears that it is stored.
TEST_P(StoreContract, TheSameRecordAgainIsKeptOnce) {
  for (const int n : {1, 2, 1}) ASSERT_TRUE(put_record(*store_, n));
  const auto records = store_->records(key("kernel", 0)).value();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_TRUE(same(records[0], record(1)));
}

TEST_P(StoreContract, EarlierWinnersAreNewestFirstAndOutliveTheirKernel) {
  ASSERT_TRUE(put_blob(*store_, 1));
  const auto win = [&](int vector, int generation) {
    StoredKernel winner = kernel(1);
    winner.kernel.key = key("generation", generation);
    winner.kernel.schedule = fmt::format("cpu.pointwise vector={}", vector);
    ASSERT_TRUE(wait([&](auto done) { store_->put_kernel(winner, done); }));
  };
  win(4, 1);
  win(8, 2);
  win(4, 3);  // wins again
  win(16, 3);
  ASSERT_TRUE(forget(key("generation", 2)));
  std::vector<std::string> schedules;
  const std::vector<Schedule> winners = store_->earlier_winners(key("workload", 1)).value();
  for (const Schedule& schedule : winners) schedules.push_back(schedule.to_string());
  EXPECT_EQ(schedules,
            (std::vector<std::string>{"cpu.pointwise vector=16", "cpu.pointwise vector=4",
                                      "cpu.pointwise vector=8"}));
}

TEST_P(StoreContract, AKernelsWorkloadComesBackAsItWasOrNotAtAll) {
  ASSERT_TRUE(put_blob(*store_, 1));
  const auto after_storing = [&](std::string text) {
    StoredKernel stored = kernel(1);
    stored.workload_text = std::move(text);
    EXPECT_TRUE(wait([&](auto done) { store_->put_kernel(stored, done); }));
    const auto read = store_->kernel(stored.kernel.key).value();
    EXPECT_EQ(read.kernel, stored.kernel);
    return read.workload_text;
  };
  for (const std::string& text :
       {std::string("kiln.graph 1\n%0 = input 0 : f32[16]\nreturn %0\n"), std::string(),
        std::string("\"}],\"workload_text\":\"\\\"worker\\\":\xc3\xa9") + '\0',
        std::string(kMaxWorkloadBytes, '%')})
    EXPECT_EQ(after_storing(text), text);
  EXPECT_EQ(after_storing(std::string(kMaxWorkloadBytes + 1, '%')), "");
  EXPECT_EQ(after_storing("no UTF-8: \xff"), "");
}

TEST_P(StoreContract, WinnersOfKinComeByTheDistanceOfTheirSizes) {
  const Digest kin = Digest::of("kin");
  for (const int n : {1, 2, 3, 4}) {
    ASSERT_TRUE(put_blob(*store_, n));
    StoredKernel stored = kernel(n);
    if (n == 4) stored.kernel.report.best_us = 0;  // a guess
    ASSERT_TRUE(wait([&](auto done) { store_->put_kernel(stored, done); }));
    const Digest own = n == 3 ? Digest::of("other kin") : kin;
    ASSERT_TRUE(wait([&](auto done) {
      store_->put_shape_generic_key(key("workload", n), {own, {1024, 64 * n}}, done);
    }));
  }
  const auto winners = [&](std::vector<int64_t> sizes) {
    std::vector<std::string> schedules;
    const std::vector<Schedule> found = store_->nearest_winners({kin, std::move(sizes)}).value();
    for (const Schedule& schedule : found) schedules.push_back(schedule.to_string());
    return schedules;
  };
  const std::string first = kernel(1).kernel.schedule, second = kernel(2).kernel.schedule;
  EXPECT_EQ(winners({1024, 65}), (std::vector<std::string>{first, second}));
  EXPECT_EQ(winners({1024, 200}), (std::vector<std::string>{second, first}));
  EXPECT_TRUE(winners({1024}).empty());
}

// ---- Sizes, pins and eviction ----

TEST_P(StoreContract, TotalsCountWhatIsStored) {
  for (const int n : {1, 2, 1}) ASSERT_TRUE(put_all(*store_, n));
  ASSERT_TRUE(put_record(*store_, 1));
  settle();
  const Store::Totals totals = store_->totals();
  EXPECT_EQ(totals.programs, 2);
  EXPECT_EQ(totals.kernels, 2);
  EXPECT_EQ(totals.records, 1);
  EXPECT_EQ(totals.bytes, static_cast<int64_t>(blob(1).size() + blob(2).size()));
  EXPECT_GT(totals.stored_bytes, totals.bytes);
  EXPECT_EQ(totals.corrupt_blobs, 0);
}

TEST_P(StoreContract, ProgramsOfOtherTemplatesAreCounted) {
  ASSERT_TRUE(put_all(*store_, 1));
  const auto count = [&](const Digest& stamp) {
    return answer_of<int64_t>([&](auto then) { store_->count_programs_not_of(stamp, then); });
  };
  EXPECT_EQ(count(Digest::of("other templates")).value(), 1);
  EXPECT_EQ(count(program(1).template_stamp).value(), 0);
}

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
