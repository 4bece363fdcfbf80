// Attention on CUDA: its schedules. Values.
#pragma once

#include <string_view>
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

// Whether a thread's registers hold its scores of tiles of so many keys, and its sums.
bool registers_hold(int keys, const AttentionProblem& problem);

// The tensor cores' type for what is stored so, as mma.cuh has it.
std::string_view attention_core(DType stored);

// REQUIRES: workload.family is kAttention.
std::vector<Schedule> cuda_attention_candidates(const Workload& workload, const Target& target);

// REQUIRES: the guarantees of kAttention.
Result<Source> print_cuda_attention(const Graph& graph, const CudaAttentionSchedule& schedule);

// Few rows of many keys: warps of a block, and blocks of a cluster, take tiles of keys by turns. Heads
// that share keys and values are rows where each has one query.
struct CudaFewRowsAttentionSchedule {
  static constexpr std::string_view kTemplate = "cuda.attention.few_rows";

  int warps = 8;   // of a block, each with tiles of its own
  int keys = 32;   // of a tile
  int stages = 2;  // of a warp's tiles in shared memory at once
  int splits = 1;  // blocks of a cluster, which share a batch's keys

  static void fields(auto& f, auto& s) {
    f("warps", s.warps, between(1, 16));
    f("keys", s.keys, multiples_of(16, 16, 128));
    f("stages", s.stages, between(1, 4));
    f("splits", s.splits, powers_of_two(1, 8));
  }

  int threads() const { return warps * 32; }
  // Dynamic, of a block: its queries and tiles, and then what its warps have of its rows.
  int64_t shared_bytes(const AttentionProblem& problem) const;
};

// "cuda.attention", "cuda.attention.few_rows".
const KernelTemplate& cuda_attention();
const KernelTemplate& cuda_few_rows_attention();

}  // namespace kiln
