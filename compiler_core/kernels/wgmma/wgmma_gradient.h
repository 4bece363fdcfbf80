// The gradient of attention on the tensor cores of compute capability 9.0 (wgmma): its schedules.
// Values.
#pragma once

#include <vector>

#include "compiler_core/kernels/decisions.h"
#include "compiler_core/kernels/kernel_template.h"

namespace kiln {

struct WgmmaGradientSchedule {
  static constexpr std::string_view kTemplate = "cuda.attention_gradient.wgmma";

  int groups = 2;  // warpgroups that multiply, with 64 rows each of what a block keeps
  int stages = 3;  // tiles of 64 tokens of what it walks in shared memory at once
  int blocks = 1;  // an SM

  static void fields(auto& f, auto& s) {
    f("groups", s.groups, between(1, 2));
    f("stages", s.stages, between(1, 6));
    f("blocks", s.blocks, between(1, 2));
  }
  // Two blocks share an SM's registers where each has one warpgroup that multiplies.
  bool go_together() const { return blocks == 1 || groups == 1; }

  int threads() const { return 128 * (groups + 1); }
};

// kUnsupported: what the copy engine cannot read. REQUIRES: workload.family is kAttentionGradient.
Status check_wgmma_gradient(const Workload& workload);

// REQUIRES: check_wgmma_gradient(workload).
std::vector<Schedule> wgmma_gradient_candidates(const Workload& workload, const Target& target);

// REQUIRES: check_wgmma_gradient() of its workload. kInvalidArgument when the schedule does not fit.
Result<Source> print_wgmma_gradient(const Graph& graph, const WgmmaGradientSchedule& schedule);

// "cuda.attention_gradient.wgmma".
const KernelTemplate& wgmma_gradient();

}  // namespace kiln
