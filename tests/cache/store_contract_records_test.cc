// Every store keeps measurements, winners to begin from, and the acts of operators.
#include "tests/cache/store_contract.h"

namespace kiln {

using namespace samples;  // NOLINT: the vocabulary of these tests

namespace {

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

}  // namespace
}  // namespace kiln
