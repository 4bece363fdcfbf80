#include "coordinator/core/requests/partition_choice.h"

#include <gtest/gtest.h>

#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

// A program that launches its kernels by these numbers.
Program launching(const std::vector<int>& kernels) {
  Program program;
  for (const int kernel : kernels) program.launches.push_back({kernel, {}, {}});
  return program;
}

// Kernels "0", "1", ... whose winners take so many us.
Program tuned(const std::vector<int>& launches, const std::vector<double>& us) {
  Program program = launching(launches);
  for (size_t i = 0; i < us.size(); ++i) {
    ProgramKernel kernel;
    kernel.key = digest_of("kernel " + std::to_string(i));
    kernel.report.best_us = us[i];
    program.kernels.push_back(kernel);
  }
  return program;
}

std::vector<double> times(const Program& program) {
  std::vector<double> us;
  for (const ProgramKernel& kernel : program.kernels) us.push_back(kernel.report.best_us);
  return us;
}

const std::vector<Digest> kNone;
const Digest kFirst = digest_of("kernel 0"), kSecond = digest_of("kernel 1");

TEST(PartitionChoice, OnePartitionIsTheAnswer) {
  const Program chosen = fastest_partition(kNone, tuned({0, 1, 1}, {10, 20}), {});
  EXPECT_EQ(times(chosen), (std::vector<double>{10, 20}));
  EXPECT_EQ(chosen.launches.size(), 3u);
}

TEST(PartitionChoice, EveryLaunchCounts) {
  // By rules kernel 0 twice, 2 * 10 us; else kernels 1 and 2 once each, 9 + 8 us.
  const std::vector<PlannedAlternative> partitions = {{launching({0, 1}), {1, 2}}};
  EXPECT_EQ(times(fastest_partition(kNone, tuned({0, 0}, {10, 9, 8}), partitions)),
            (std::vector<double>{9, 8}));
  EXPECT_EQ(times(fastest_partition(kNone, tuned({0}, {10, 9, 8}), partitions)),
            std::vector<double>{10});
}

TEST(PartitionChoice, TimesOfDevicesOfUnequalSpeedAreComparedByCalibration) {
  // Kernel 1 was tuned in an earlier incarnation, whose reference device takes half the time for
  // everything.
  const std::vector<PlannedAlternative> partitions = {{launching({0}), {1}}};
  Program program = tuned({0}, {10, 6});
  program.kernels[0].report.sentinel_us = 100;
  program.kernels[1].report.sentinel_us = 50;
  const Program chosen = fastest_partition(kNone, program, partitions);
  EXPECT_EQ(times(chosen), std::vector<double>{10});
  ASSERT_EQ(chosen.cuts.size(), 2u);
  EXPECT_EQ(chosen.cuts[1].us, 12);

  program.kernels[1].report.sentinel_us = 0;  // not known: as it stands
  EXPECT_EQ(times(fastest_partition(kNone, program, partitions)), std::vector<double>{6});
}

TEST(PartitionChoice, AnAlternativeMayShareKernelsWithTheDefault) {
  const std::vector<PlannedAlternative> partitions = {{launching({0, 1}), {2, 0}}};
  const Program chosen = fastest_partition(kNone, tuned({0, 1}, {10, 9, 2}), partitions);
  EXPECT_EQ(times(chosen), (std::vector<double>{2, 10}));
  EXPECT_EQ(chosen.launches[1].kernel, 1);
}

TEST(PartitionChoice, RulesStandWhereTimesAreAlike) {
  const std::vector<PlannedAlternative> partitions = {{launching({0}), {1}}};
  EXPECT_EQ(times(fastest_partition(kNone, tuned({0}, {100, 99}), partitions)),
            std::vector<double>{100});
  EXPECT_EQ(times(fastest_partition(kNone, tuned({0}, {100, 97}), partitions)),
            std::vector<double>{97});
}

TEST(PartitionChoice, AnAlternativeWhoseKernelFailedIsNone) {
  const Program program = tuned({0}, {10, 5, 7});
  const std::vector<PlannedAlternative> partitions = {{launching({0}), {1}}, {launching({0}), {2}}};
  EXPECT_TRUE(has_partition_without({kFirst}, program, partitions));
  EXPECT_EQ(times(fastest_partition({kSecond}, program, partitions)), std::vector<double>{7});
  EXPECT_EQ(times(fastest_partition({kFirst, kSecond}, program, partitions)),
            std::vector<double>{7});
  EXPECT_FALSE(
      has_partition_without({kFirst, kSecond, digest_of("kernel 2")}, program, partitions));
  EXPECT_FALSE(has_partition_without({kSecond}, tuned({1}, {1, 1}), {}))
      << "one partition needs all";
}

TEST(PartitionChoice, TheProgramSaysWhatEachPartitionTook) {
  Program rules = tuned({0, 0}, {10, 9, 8}), other = launching({0, 1}), broken = launching({0});
  rules.cuts = {{"by rules", 0, 0, false}};
  other.cuts = {{"other", 0, 0, false}};
  broken.cuts = {{"broken", 0, 0, false}};
  const std::vector<PlannedAlternative> partitions = {{other, {1, 0}}, {broken, {2}}};
  const Program chosen = fastest_partition({digest_of("kernel 2")}, rules, partitions);
  EXPECT_EQ(chosen.cuts,
            (std::vector<TunedCut>{
                {"by rules", 2, 20, false}, {"other", 2, 19, true}, {"broken", 1, 0, false}}));
  EXPECT_TRUE(fastest_partition(kNone, tuned({0}, {10}), {}).cuts.empty()) << "no choice";
}

// ---- in the core ----

PlanFinished two_alternatives(const CoreBench& bench, std::vector<PlannedKernel> kernels) {
  Program by_default = launching({0});
  by_default.key = bench.key();
  Program other = by_default;
  return {by_default.key, by_default, std::move(kernels), {{std::move(other), {1}}}};
}

void ask_and_plan(CoreBench& bench, std::vector<PlannedKernel> kernels) {
  bench.report("w");
  const CompileRequest request = bench.ask("c", 1);
  bench.miss(bench.key());
  bench.upload("c", request);
  bench.step(two_alternatives(bench, std::move(kernels)));
}

PlannedKernel cached_kernel(const std::string& name, double us) {
  PlannedKernel planned = planned_kernel(name, 1);
  planned.cached = ProgramKernel{};
  planned.cached->key = planned.key;
  planned.cached->report.best_us = us;
  return planned;
}

TEST(CorePartitionChoice, TheFasterPartitionIsStoredAndAnswered) {
  CoreBench bench;
  ask_and_plan(bench, {cached_kernel("a", 10), cached_kernel("b", 5)});
  const auto stored = bench.one<StoreProgram>();
  EXPECT_EQ(times(stored.program), std::vector<double>{5});
}

TEST(CorePartitionChoice, BothPartitionsAreTunedBeforeOneIsChosen) {
  CoreBench bench;
  ask_and_plan(bench, {cached_kernel("a", 10), planned_kernel("b", 1)});
  bench.report("w");
  EXPECT_TRUE(bench.none<StoreProgram>());
  const Job job = bench.job_of("w");
  ASSERT_EQ(job.kernel_key, digest_of("kernel b"));
  bench.report("w", {}, {ok_result(job, 0, 5)});
  bench.store_all();
  ASSERT_EQ(bench.programs.size(), 1u);
  ASSERT_EQ(bench.programs[0].kernels.size(), 1u);
  EXPECT_EQ(bench.programs[0].kernels[0].key, digest_of("kernel b"));
}

TEST(CorePartitionChoice, AnAlternativeThatCannotBeTunedCostsNothing) {
  CoreBench bench;
  ask_and_plan(bench, {cached_kernel("a", 10), planned_kernel("b", 1)});
  bench.report("w");
  const Job job = bench.job_of("w");
  bench.report("w", {}, {bad_result(job, 0, Verdict::kWrongResult)});
  bench.store_all();
  ASSERT_EQ(bench.programs.size(), 1u);
  EXPECT_EQ(times(bench.programs[0]), std::vector<double>{10});
}

}  // namespace
}  // namespace kiln
