// Programs that can be cut in several partitions: which one is answered, and which is stored for
// good.
#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

// Kernel "rules" alone, or kernel "other" alone; one candidate each.
class CoreAlternatives : public ::testing::Test {
 protected:
  void SetUp() override {
    bench_.report("w");
    const CompileRequest request = bench_.ask("c", 1);
    bench_.miss(bench_.key());
    bench_.upload("c", request);
    PlanFinished plan{bench_.key(), Program{}, {}};
    plan.program->key = bench_.key();
    plan.program->graph = digest_of("g");
    plan.program->target = cpu_target();
    plan.program->mode = Mode::kMaxAutotune;
    plan.program->launches = {{0, {}, {}}};
    plan.alternatives = {{*plan.program, {1}}};
    plan.kernels = {planned_kernel("rules", 1), planned_kernel("other", 1)};
    bench_.step(std::move(plan));
    bench_.report("w");
    for (SendOrders& orders : bench_.take<SendOrders>())
      for (Job& job : orders.orders.jobs) job_[job.kernel_key] = job;
  }
  // A job of it, when the worker has a slot free.
  void finish(const char* kernel, double us) {
    const Digest key = digest_of(std::string("kernel ") + kernel);
    ASSERT_TRUE(job_.contains(key)) << kernel;
    bench_.report("w", {}, {ok_result(job_.at(key), 0, us)});
    for (SendOrders& orders : bench_.take<SendOrders>())
      for (Job& job : orders.orders.jobs) job_[job.kernel_key] = job;
  }

  CoreBench bench_;
  std::map<Digest, Job> job_;  // the last of each kernel
};

std::string key_of_only_kernel(const Answer& answer) {
  const Program program = program_from_json(answer.reply.program_json).value();
  return program.kernels.size() == 1 ? program.kernels[0].key.hex() : "";
}

TEST_F(CoreAlternatives, TheFastestIsStoredOnceAllAreTuned) {
  finish("rules", 20);
  bench_.store_all();
  EXPECT_TRUE(bench_.none<Answer>());
  finish("other", 10);
  bench_.store_all();
  EXPECT_EQ(key_of_only_kernel(bench_.one<Answer>()), digest_of("kernel other").hex());
  EXPECT_EQ(bench_.programs.size(), 1u);
}

// What is stored is never chosen again, and workers come back.
TEST_F(CoreAlternatives, OneThatOnlyLackedAWorkerIsWaitedForByWhatIsStored) {
  finish("rules", 20);
  bench_.store_all();
  bench_.step(WorkerGone{"w"});
  bench_.tick(100);
  bench_.tick(CoreOptions{}.worker_grace_ms);
  bench_.store_all();
  EXPECT_EQ(key_of_only_kernel(bench_.one<Answer>()), digest_of("kernel rules").hex());
  EXPECT_TRUE(bench_.programs.empty()) << "for good";
}

TEST_F(CoreAlternatives, OneThatCannotBeBuiltIsNotWaitedFor) {
  finish("rules", 20);
  const Job job = job_.at(digest_of("kernel other"));
  bench_.report("w", {}, {bad_result(job, 0, Verdict::kCompileFailed)});
  bench_.store_all();
  EXPECT_EQ(key_of_only_kernel(bench_.one<Answer>()), digest_of("kernel rules").hex());
  EXPECT_EQ(bench_.programs.size(), 1u);
}

// A full disk, while the losing partition's kernel was written.
TEST_F(CoreAlternatives, AKernelOfALosingPartitionThatIsNotStoredKeepsNothingBack) {
  finish("rules", 20);
  for (const StoreKernel& store : bench_.take<StoreKernel>())
    bench_.step(KernelStored{store.kernel.key, fail(Code::kUnavailable, "full")});
  finish("other", 10);
  bench_.store_all();
  EXPECT_EQ(key_of_only_kernel(bench_.one<Answer>()), digest_of("kernel other").hex());
  EXPECT_EQ(bench_.programs.size(), 1u);
}

}  // namespace
}  // namespace kiln
