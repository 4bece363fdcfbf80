#include "compiler_core/kernels/untimed_partition.h"

#include <limits>

#include "compiler_core/kernels/registry.h"
#include "compiler_core/plan/sizes.h"
#include "compiler_core/tune/device_peak.h"

namespace kiln {
namespace {

// Of products of one first operand: kernels that wait for memory alone, and those on wgmma too.
constexpr int64_t kFewJoinedRows = 16;
constexpr double kLaunchUs = 2;  // until a kernel's first block runs, behind another kernel

Result<double> kernel_us(const Workload& workload, const Target& target, const DevicePeak& peak) {
  TRY(const KernelCost cost, workload_cost(workload, measured_sizes(workload.graph.symbols())));
  TRY(const double slowness, expected_slowness(workload, target));
  return kLaunchUs + peak.floor_us(cost) * slowness;
}

}  // namespace

PartitionRules partition_rules(const Target& target) {
  PartitionRules rules;
  const bool has_wgmma = target.backend == Backend::kCuda && target.isa == "sm_90a";
  rules.channels_last = rules.picks_matrices = rules.gradients = has_wgmma;
  if (target.backend == Backend::kCuda) {
    rules.most_joined_rows = has_wgmma ? PartitionRules::kAnyRows : kFewJoinedRows;
    rules.computes_keys = rules.norms_in_products = true;
    rules.one_pass = has_wgmma ? OnePass::kOneRowInClusters : OnePass::kOneRow;
  }
  return rules;
}

Result<double> expected_us(const Plan& plan, const Target& target) {
  DevicePeak peak = cuda_peak(target);
  // A device that nothing is known about is taken to have the proportions of an A100.
  if (peak.gb_per_s == 0) peak = cuda_peak(*Target::parse("cuda:sm_80"));
  std::vector<double> times;
  for (const Workload& workload : plan.kernels) {
    TRY(times.emplace_back(), kernel_us(workload, target, peak));
  }
  double sum = 0;
  for (const Launch& launch : plan.launches) sum += times[static_cast<size_t>(launch.kernel)];
  return sum;
}

Result<PlanAlternative> untimed_partition(const Graph& canonical, const Target& target) {
  const PartitionRules rules = partition_rules(target);
  if (target.backend != Backend::kCuda) {
    TRY(Plan by_rules, plan(canonical, rules));
    return PlanAlternative{"by rules", rules, std::move(by_rules)};
  }
  TRY(std::vector<PlanAlternative> all, plan_alternatives(canonical, rules, ChosenBy::kEstimates));
  size_t best = 0;
  double least_us = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < all.size() && all.size() > 1; ++i)
    if (const auto us = expected_us(all[i].plan, target); us && *us < least_us) {
      best = i;
      least_us = *us;
    }
  return std::move(all[best]);
}

}  // namespace kiln
