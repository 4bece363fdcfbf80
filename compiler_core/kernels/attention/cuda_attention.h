// Attention on CUDA: its schedules. Values.
#pragma once

#include <vector>

#include "compiler_core/kernels/attention/attention_problem.h"
#include "compiler_core/kernels/decisions.h"
#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

struct CudaAttentionSchedule {
  static constexpr std::string_view kTemplate = "cuda.attention";

  int warps = 4;   // of a block; each has 16 query rows
  int keys = 64;   // of a tile
  int stages = 2;  // tiles in shared memory at once

  static void fields(auto& f, auto& s) {
    f("warps", s.warps, between(1, 8));
    f("keys", s.keys, multiples_of(16, 16, 256));
    f("stages", s.stages, between(1, 4));
  }

  int threads() const { return warps * 32; }
  // Dynamic shared memory of a block: its queries, and stages of keys and values.
  int shared_bytes(const AttentionProblem& problem) const;
};

// Elements of a row of shared memory that has room for `elements` of `bytes` each, in whole chunks
// as matmul/device/mma.cuh lays them out.
int shared_row(int64_t elements, int64_t bytes);

// REQUIRES: workload.family is kAttention.
std::vector<Schedule> cuda_attention_candidates(const Workload& workload, const Target& target);

// REQUIRES: the guarantees of kAttention.
Result<Source> print_cuda_attention(const Graph& graph, const CudaAttentionSchedule& schedule);

// "cuda.attention".
const KernelTemplate& cuda_attention();

}  // namespace kiln
