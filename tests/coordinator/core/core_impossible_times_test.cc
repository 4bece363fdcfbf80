// A worker whose times no device can reach: they do not count, and it is treated as one that failed.
#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

TEST(CoreImpossibleTimes, AreNotTakenAndAnotherWorkerMeasures) {
  CoreOptions options;
  options.policy.finalists = 1;
  CoreBench bench(options);
  PlannedKernel kernel = planned_kernel("k", 2);
  kernel.impossible_us = 5;
  bench.report("evil");
  bench.start({kernel});
  const Job first = bench.job_of("evil");
  ASSERT_EQ(first.candidates.size(), 2u);
  bench.report("honest");
  bench.report("evil", {}, {ok_result(first, 0, 0.001), ok_result(first, 1, 4.9)});
  EXPECT_EQ(bench.core().stats(bench.now_ms).retries, 2);
  EXPECT_EQ(bench.job_of("evil").lease, 0u) << "what failed there is left to others";
  bench.report("honest");
  for (Job job = bench.job_of("honest"); job.lease != 0; job = bench.job_of("honest"))
    for (const CandidateJob& c : job.candidates)
      bench.report("honest", {}, {ok_result(job, c.index, c.index == 0 ? 12 : 8)});
  bench.store_all();
  const auto program = program_from_json(bench.one<Answer>().reply.program_json);
  ASSERT_TRUE(program.has_value());
  EXPECT_EQ(program->kernels[0].schedule, schedule_of(1).to_string());
}

}  // namespace
}  // namespace kiln
