// Products of one first operand of few rows on CUDA: kernels that wait for the second operands' way from
// memory. Values.
#pragma once

#include "compiler_core/kernels/matmul/cuda_matmul.h"

namespace kiln {

// `bn` columns of a block are those of all products of an output, side by side.
struct CudaJoinedFewRowsSchedule : CudaFewRowsSchedule {
  static constexpr std::string_view kTemplate = "cuda.products.few_rows";
};

// "cuda.products.few_rows".
const KernelTemplate& cuda_joined_few_rows();

}  // namespace kiln
