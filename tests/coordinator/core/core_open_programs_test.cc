// Programs at work, as people look at them.
#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

TEST(CoreOpenPrograms, SaysStageWaitersAndHowFarEachKernelIs) {
  CoreBench bench;
  bench.report("w");
  bench.start({planned_kernel("k", 5)});
  bench.tick(2'000);
  const auto open = bench.core().open_programs(bench.now_ms, 10);
  ASSERT_EQ(open.size(), 1u);
  EXPECT_EQ(open[0].key, bench.key());
  EXPECT_EQ(open[0].stage, "tuning");
  EXPECT_EQ(open[0].waiters, 1);
  EXPECT_GE(open[0].age_s, 2);
  EXPECT_FALSE(open[0].detached);
  ASSERT_EQ(open[0].kernels.size(), 1u);
  EXPECT_EQ(open[0].kernels[0].key, digest_of("kernel k"));
  EXPECT_EQ(open[0].kernels[0].stage, "screening");
  EXPECT_EQ(open[0].kernels[0].candidates, 5);
  EXPECT_EQ(open[0].kernels[0].settled, 0);
}

TEST(CoreOpenPrograms, AreTheOldestAndNoMereLookUps) {
  CoreBench bench;
  bench.report("w");
  for (const char* graph : {"first", "second", "third"}) {
    bench.start({planned_kernel(graph, 5)}, Mode::kMaxAutotune, graph, "c",
                1 + static_cast<uint64_t>(graph[0]));
    bench.tick(1'000);
  }
  bench.ask("reader", 1, "looked up");
  EXPECT_EQ(bench.core().open_programs(bench.now_ms, 10).size(), 3u);
  const auto oldest = bench.core().open_programs(bench.now_ms, 2);
  ASSERT_EQ(oldest.size(), 2u);
  EXPECT_EQ(oldest[0].key, bench.key("first"));
  EXPECT_EQ(oldest[1].key, bench.key("second"));
}

}  // namespace
}  // namespace kiln
