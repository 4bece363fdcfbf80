#include "coordinator/core/requests/partition_choice.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "compiler_core/base/check.h"
#include "coordinator/core/mutation.h"

namespace kiln {
namespace {

constexpr double kWorthIt = 0.98;

// The kernels of the default partition: every one is launched.
std::vector<int> kernels_by_rules(const Program& tuned) {
  int count = 0;
  for (const Launch& launch : tuned.launches) count = std::max(count, launch.kernel + 1);
  std::vector<int> kernels(static_cast<size_t>(count));
  std::iota(kernels.begin(), kernels.end(), 0);
  return kernels;
}

const ProgramKernel& kernel_of(const Program& tuned, int position) {
  return tuned.kernels.at(static_cast<size_t>(position));
}

bool works(const std::vector<Digest>& failed, const Program& tuned,
           const std::vector<int>& kernels) {
  return std::none_of(kernels.begin(), kernels.end(), [&](int kernel) {
    return std::find(failed.begin(), failed.end(), kernel_of(tuned, kernel).key) != failed.end();
  });
}

// `us`: 0 where a kernel of it failed.
TunedCut cut_of(const Program& partition, double us) {
  TunedCut cut = partition.cuts.empty() ? TunedCut{} : partition.cuts.front();
  cut.launches = static_cast<int>(partition.launches.size());
  cut.us = us;
  return cut;
}

// The scale on which kernels are compared: the first that is known. What was stored by an earlier
// incarnation of the coordinator is on that incarnation's.
double scale_of(const Program& tuned) {
  for (const ProgramKernel& kernel : tuned.kernels)
    if (kernel.report.sentinel_us > 0) return kernel.report.sentinel_us;
  return 0;
}

double time_of(const KernelReport& report, double scale) {
  return report.sentinel_us > 0 ? report.best_us * scale / report.sentinel_us : report.best_us;
}

double time_of(const Program& tuned, const Program& partition, const std::vector<int>& kernels) {
  const double scale = scale_of(tuned);
  double us = 0;
  std::set<int> counted;
  for (const Launch& launch : partition.launches)
    if (counted.insert(launch.kernel).second || !mutated(Mutation::kCountKernelsOnce))
      us += time_of(kernel_of(tuned, kernels.at(static_cast<size_t>(launch.kernel))).report, scale);
  return us;
}

}  // namespace

bool has_partition_without(const std::vector<Digest>& failed, const Program& tuned,
                           const std::vector<PlannedAlternative>& alternatives) {
  // With one partition, every kernel is its own.
  if (alternatives.empty() || mutated(Mutation::kFailWithOneAlternative)) return failed.empty();
  return works(failed, tuned, kernels_by_rules(tuned)) ||
         std::any_of(alternatives.begin(), alternatives.end(),
                     [&](const PlannedAlternative& partition) {
                       return works(failed, tuned, partition.kernels);
                     });
}

Program fastest_partition(const std::vector<Digest>& failed, Program tuned,
                          std::vector<PlannedAlternative> alternatives) {
  if (alternatives.empty()) return tuned;
  std::vector<int> kernels = kernels_by_rules(tuned);
  bool found = works(failed, tuned, kernels);
  double best_us = found ? time_of(tuned, tuned, kernels) : 0;
  std::vector<TunedCut> cuts = {cut_of(tuned, best_us)};
  best_us *= kWorthIt;
  PlannedAlternative* best = nullptr;  // null: the default partition
  size_t taken = 0;                    // in cuts
  for (PlannedAlternative& partition : alternatives) {
    const bool is_alternative = works(failed, tuned, partition.kernels);
    const double us = is_alternative ? time_of(tuned, partition.program, partition.kernels) : 0;
    cuts.push_back(cut_of(partition.program, us));
    const bool is_slower = (us >= best_us) != mutated(Mutation::kSlowestAlternative);
    if (!is_alternative || (found && is_slower)) continue;
    found = true;
    best = &partition;
    best_us = us;
    taken = cuts.size() - 1;
  }
  CHECK(found, "a partition is left, or the task has failed");
  cuts[taken].taken = true;
  if (best != nullptr) kernels = best->kernels;
  std::vector<ProgramKernel> own;
  for (const int kernel : kernels) own.push_back(kernel_of(tuned, kernel));
  Program chosen = best != nullptr ? std::move(best->program) : std::move(tuned);
  chosen.kernels = std::move(own);
  chosen.cuts = std::move(cuts);
  return chosen;
}

}  // namespace kiln
