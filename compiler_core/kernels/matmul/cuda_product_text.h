// Product text: what the CUDA kernels of matmuls and of convolutions have in common, which are
// tiles of one matrix product after another. In the vocabulary of matmul/device/matmul.cuh. Pure
// functions.
#pragma once

#include <string>
#include <string_view>

#include "compiler_core/ir/graph.h"
#include "compiler_core/kernels/matmul/cuda_matmul.h"

namespace kiln {

constexpr int kFinishThreads = 256;  // of the kernel that adds the sums of splits

// The dtype of a sum that becomes a `result`, and its C type.
DType value_dtype(DType result);
std::string_view value_type(DType result);

// Results a vector: as many as fit 16 bytes of `graph`'s first output and divide its row of
// `columns`, so that no vector is only partly there.
int product_lanes(const Graph& graph, int64_t columns);

// Blocks an SM: as many as the registers are enough for, as far as shared memory lets them.
int blocks_an_sm(const CudaMatmulSchedule& schedule, const MatmulProblem& problem);

// The types Value and Tiling of a kernel.
std::string print_tiling(const CudaMatmulSchedule& schedule, DType result);

// The class that adds the products of a tile, of A, B and Tiling.
std::string_view sums_type(DType stored);

// Where LANES sums of split `split` of `batch`, `row` and `column` lie in the workspace.
std::string partial_sums(std::string_view split, const MatmulProblem& problem);

// `sums`: those of all splits added.
std::string add_partial_sums(int splits, const MatmulProblem& problem);

}  // namespace kiln
