// Worker keys of unequal trust: who times finals, whose winners need a second key.
#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

constexpr Standing kScreener{false, false}, kUsual{}, kAlone{true, true};

class CoreTrustTiers : public ::testing::Test {
 protected:
  static CoreOptions confirming(int confirm) {
    CoreOptions options;
    options.confirm = confirm;
    options.policy.finalists = 2;
    options.worker_grace_ms = 1'000;
    return options;
  }
  static void report(CoreBench& bench, const WorkerId& worker, const Standing& standing,
                     std::vector<CandidateResult> results = {}) {
    ReportReceived event{worker, bench.report_of(worker, {}, std::move(results))};
    event.owner = "key of " + worker;
    event.standing = standing;
    bench.step(std::move(event));
  }
};

TEST_F(CoreTrustTiers, WhoMayOnlyScreenGetsNoFinal) {
  CoreBench bench(confirming(0));
  report(bench, "s", kScreener);
  bench.start({planned_kernel("k", 2)});
  const Job screening = bench.job_of("s");
  ASSERT_EQ(screening.candidates.size(), 2u);
  report(bench, "s", kScreener, {ok_result(screening, 0, 10), ok_result(screening, 1, 10.1)});
  bench.store_all();
  report(bench, "s", kScreener);
  EXPECT_TRUE(bench.job_of("s").candidates.empty());
  report(bench, "f", kUsual);
  EXPECT_EQ(bench.job_of("f").kind, Job::Kind::kFinal);
}

TEST_F(CoreTrustTiers, WithoutAnyWhoMayTheReasonIsSaid) {
  CoreBench bench(confirming(0));
  report(bench, "s", kScreener);
  bench.start({planned_kernel("k", 2)});
  const Job screening = bench.job_of("s");
  report(bench, "s", kScreener, {ok_result(screening, 0, 10), ok_result(screening, 1, 10.1)});
  bench.store_all();
  for (int i = 0; i < 30; ++i) {
    report(bench, "s", kScreener);
    bench.tick(100);
  }
  const Error error = bench.one<Answer>().reply.outcome.error();
  EXPECT_EQ(error.code, Code::kUnavailable);
  EXPECT_NE(error.message.find("trust=screens"), std::string::npos) << error.message;
}

TEST_F(CoreTrustTiers, AScreenersWinnerNeedsASecondKeyWhateverOthersNeed) {
  CoreBench bench(confirming(0));
  report(bench, "s", kScreener);
  bench.start({planned_kernel("k", 1)}, Mode::kDefault);
  const Job job = bench.job_of("s");
  report(bench, "s", kScreener, {ok_result(job, 0, 0)});
  bench.store_all();
  EXPECT_TRUE(bench.none<Answer>());
  report(bench, "t", kScreener);
  EXPECT_TRUE(bench.job_of("t").candidates.empty()) << "another screener cannot say so";
  report(bench, "f", kUsual);
  const Job again = bench.job_of("f");
  ASSERT_EQ(again.candidates.size(), 1u);
  report(bench, "f", kUsual, {ok_result(again, 0, 0)});
  bench.store_all();
  EXPECT_TRUE(bench.one<Answer>().reply.outcome);
}

TEST_F(CoreTrustTiers, WhoseWordIsEnoughNeedsNobody) {
  CoreBench bench(confirming(2));
  report(bench, "a", kAlone);
  bench.start({planned_kernel("k", 1)}, Mode::kDefault);
  const Job job = bench.job_of("a");
  report(bench, "f", kUsual);
  report(bench, "a", kAlone, {ok_result(job, 0, 0)});
  bench.store_all();
  EXPECT_TRUE(bench.one<Answer>().reply.outcome);
}

TEST_F(CoreTrustTiers, StatsSayIt) {
  CoreBench bench;
  report(bench, "a", kAlone);
  report(bench, "f", kUsual);
  report(bench, "s", kScreener);
  std::map<std::string, std::string> trust;
  for (const WorkerStats& worker : bench.core().stats(bench.now_ms).workers)
    trust[worker.name] = worker.trust;
  EXPECT_EQ(trust,
            (std::map<std::string, std::string>{{"a", "alone"}, {"f", ""}, {"s", "screens"}}));
}

}  // namespace
}  // namespace kiln
