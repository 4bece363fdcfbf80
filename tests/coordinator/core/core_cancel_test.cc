// A program that is tuned without a client can be ended by an operator, wherever it is.
#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

class CoreCancel : public ::testing::Test {
 protected:
  void SetUp() override {
    bench_.report("w");
    CompileRequest request = bench_.ask("c", 1);  // takes the place of a client that detaches
    bench_.step(RequestCancelled{"c", 1});
    bench_.done.clear();
    request.request = 2;
    request.detach = true;
    bench_.step(RequestReceived{"c", request});
    bench_.miss(bench_.key());
    bench_.upload("c", request);
    bench_.plan({planned_kernel("k", 1)});
    const StoreDetached store = bench_.one<StoreDetached>();
    bench_.step(DetachedStored{store.key, store.task, {}});
    EXPECT_EQ(bench_.one<Answer>().reply.outcome.value(), CacheOutcome::kQueued);
  }
  int64_t known() {
    const Stats stats = bench_.core().stats(bench_.now_ms);
    return stats.detached_queued + stats.detached_running + stats.detached_failed;
  }

  CoreBench bench_;
};

TEST_F(CoreCancel, ARunningOneEndsWithItsLeasesAndItsStoredTask) {
  EXPECT_EQ(known(), 1);
  bench_.step(CancelDetached{bench_.key()});
  EXPECT_EQ(known(), 0);
  const EndDetached end = bench_.one<EndDetached>();
  EXPECT_TRUE(end.cancelled);
  EXPECT_TRUE(end.outcome.has_value()) << "the store forgets it: it is no failure";
  EXPECT_EQ(bench_.core().stats(bench_.now_ms).flights_open, 0);
  bench_.report("w");
  EXPECT_EQ(bench_.job_of("w").lease, 0u);
}

TEST_F(CoreCancel, AClientThatWaitsIsServedAllTheSame) {
  bench_.ask("d", 7);
  bench_.step(CancelDetached{bench_.key()});
  EXPECT_EQ(known(), 0);
  const Job job = bench_.job_of("w");
  bench_.report("w", {}, {ok_result(job, 0, 10)});
  bench_.store_all();
  EXPECT_TRUE(bench_.one<Answer>().reply.outcome);
}

TEST_F(CoreCancel, AFailedOneIsForgotten) {
  const Job job = bench_.job_of("w");
  bench_.report("w", {}, {bad_result(job, 0, Verdict::kCompileFailed)});
  EXPECT_EQ(bench_.core().stats(bench_.now_ms).detached_failed, 1);
  bench_.step(CancelDetached{bench_.key()});
  EXPECT_EQ(known(), 0);
  EXPECT_FALSE(bench_.none<ForgetDetached>());
}

TEST_F(CoreCancel, AnUnknownOneChangesNothing) {
  bench_.done.clear();
  bench_.step(CancelDetached{digest_of("another")});
  EXPECT_EQ(known(), 1);
  EXPECT_TRUE(bench_.none<EndDetached>());
}

}  // namespace
}  // namespace kiln
