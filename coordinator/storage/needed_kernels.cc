#include "coordinator/storage/needed_kernels.h"

namespace kiln {

void NeededKernels::planned(int64_t now_ms, const PlanFinished& plan) {
  ended(plan.key);
  if (!plan.program) return;
  Needed needed{plan.key, now_ms, {}};
  for (const PlannedKernel& kernel : plan.kernels) needed.kernels.push_back(kernel.key);
  programs_.push_back(std::move(needed));
  if (programs_.size() > kMost) programs_.pop_front();
}

void NeededKernels::ended(const Digest& program) {
  std::erase_if(programs_, [&](const Needed& needed) { return needed.program == program; });
}

std::vector<Digest> NeededKernels::kernels(int64_t now_ms) {
  while (!programs_.empty() && programs_.front().since_ms + kLongestMs <= now_ms)
    programs_.pop_front();
  std::vector<Digest> kernels;
  for (const Needed& needed : programs_)
    kernels.insert(kernels.end(), needed.kernels.begin(), needed.kernels.end());
  return kernels;
}

}  // namespace kiln
