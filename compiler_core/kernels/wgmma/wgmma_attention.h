// Attention on the tensor cores of compute capability 9.0 (wgmma), for fp16 and bf16 and heads of at
// most 256: its schedules. Values.
#pragma once

#include <vector>

#include "compiler_core/kernels/decisions.h"
#include "compiler_core/kernels/kernel_template.h"

namespace kiln {

struct WgmmaAttentionSchedule {
  static constexpr std::string_view kTemplate = "cuda.attention.wgmma";

  int groups = 2;           // warpgroups that multiply, 64 query rows each
  int keys = 128;           // of a tile
  int stages = 2;           // tiles in shared memory at once
  int blocks = 1;           // an SM
  bool persistent = false;  // as many blocks as the device has at once take all rows by turns

  static void fields(auto& f, auto& s) {
    f("groups", s.groups, between(1, 3));
    f("keys", s.keys, multiples_of(16, 64, 256));
    f("stages", s.stages, between(1, 4));
    f("blocks", s.blocks, between(1, 3));
    f("persistent", s.persistent, between(0, 1));
  }
  // Two blocks share an SM's registers where each has one warpgroup that multiplies.
  bool go_together() const { return blocks == 1 || groups == 1; }

  int query_slots() const { return persistent ? 2 : 1; }

  int threads() const { return 128 * (groups + 1); }
};

// kUnsupported: what is left to other kernels. REQUIRES: workload.family is kAttention.
Status check_wgmma_attention(const Workload& workload);

// REQUIRES: check_wgmma_attention(workload).
std::vector<Schedule> wgmma_attention_candidates(const Workload& workload, const Target& target);

// REQUIRES: check_wgmma_attention() of its workload. kInvalidArgument when
// the schedule does not fit.
Result<Source> print_wgmma_attention(const Graph& graph, const WgmmaAttentionSchedule& schedule,
                                     const Target& target);

// "cuda.attention.wgmma".
const KernelTemplate& wgmma_attention();

}  // namespace kiln
