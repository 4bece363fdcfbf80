// A program without a client that costs processes of workers: it is stopped at the third, which
// counts over all workers and incarnations.
#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

CoreOptions patient() {
  CoreOptions options;
  options.worker_grace_ms = 1'000;
  return options;
}

class CoreCostly : public ::testing::Test {
 protected:
  // Queued and being tuned, with work for one worker.
  void queue(int schedules = 1) {
    bench_.report("w1");
    RequestReceived event;
    event.client = "c";
    event.user = "ann";
    event.request.request = 1;
    event.request.graph = digest_of("g");
    event.request.target = cpu_target();
    event.request.mode = Mode::kMaxAutotune;
    event.request.detach = true;
    bench_.step(event);
    bench_.miss(bench_.key());
    event.request.graph_text = "graph";
    bench_.step(event);
    bench_.plan({planned_kernel("k", schedules)});
    const StoreDetached store = bench_.one<StoreDetached>();
    bench_.step(DetachedStored{store.key, store.task, {}});
    bench_.take<Answer>();
  }
  // A worker takes what there is, says that it works on it, and is gone.
  void lose(const WorkerId& worker) {
    bench_.report(worker);
    const Job job = bench_.job_of(worker);
    ASSERT_FALSE(job.candidates.empty()) << worker;
    bench_.report(worker, {{job.lease, job.epoch, 0}});
    bench_.step(WorkerGone{worker});
  }
  Stats stats() { return bench_.core().stats(bench_.now_ms); }

  CoreBench bench_{patient()};
};

TEST_F(CoreCostly, TheThirdWorkerThatItCostsIsTheLast) {
  queue(10);
  lose("w1");
  EXPECT_EQ(bench_.one<StoreLost>().task.lost, 1);
  EXPECT_EQ(stats().detached.at(0).lost, 1);
  lose("w2");
  EXPECT_EQ(bench_.one<StoreLost>().task.lost, 2);
  EXPECT_TRUE(bench_.none<EndDetached>());
  lose("w3");
  EXPECT_EQ(bench_.one<StoreLost>().task.lost, 3);
  const EndDetached end = bench_.one<EndDetached>();
  ASSERT_FALSE(end.outcome);
  EXPECT_NE(end.outcome.error().message.find("cost 3 processes"), std::string::npos);
  const Stats now = stats();
  EXPECT_EQ(now.detached_failed, 1);
  EXPECT_EQ(now.detached.at(0).lost, 3);
  bench_.report("w4");
  EXPECT_TRUE(bench_.job_of("w4").candidates.empty()) << "nobody gets it any more";
}

TEST_F(CoreCostly, WhatItCostBeforeARestartCounts) {
  DetachedTask task{digest_of("g"), cpu_target(), Mode::kMaxAutotune};
  task.lost = 2;
  bench_.report("w");
  bench_.step(DetachedRecovered{task});
  bench_.tick(100);
  bench_.miss(bench_.key());
  bench_.plan({planned_kernel("k", 10)});
  lose("w");
  EXPECT_FALSE(bench_.one<EndDetached>().outcome);
  EXPECT_EQ(stats().detached.at(0).lost, 3);
}

TEST_F(CoreCostly, AWorkerThatHadNotBegunIsNotItsFault) {
  queue(10);
  for (const char* worker : {"w1", "w2", "w3", "w4"}) {
    bench_.report(worker);
    ASSERT_FALSE(bench_.job_of(worker).candidates.empty());
    bench_.step(WorkerGone{worker});
  }
  EXPECT_TRUE(bench_.none<StoreLost>());
  EXPECT_EQ(stats().detached_running, 1);
}

// Each attempt costs three runners: tried again every minute it would never end.
TEST_F(CoreCostly, ItFailsForGoodOnceThreeRunnersDiedOfTheKernelThatItNeeds) {
  queue(1);
  for (int death = 1; death <= 3; ++death) {
    bench_.report("w1");
    const Job job = bench_.job_of("w1");
    ASSERT_EQ(job.candidates.size(), 1u) << death;
    bench_.report("w1", {}, {bad_result(job, 0, Verdict::kRunnerDied)});
    bench_.store_all();
  }
  EXPECT_FALSE(bench_.one<EndDetached>().outcome);
  EXPECT_EQ(stats().detached_failed, 1);
  EXPECT_EQ(stats().detached_queued + stats().detached_running, 0);
}

}  // namespace
}  // namespace kiln
