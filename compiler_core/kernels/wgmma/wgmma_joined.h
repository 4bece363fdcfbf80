// Products of one first operand (the family kProducts) on the tensor cores of compute capability 9.0.
// Values.
#pragma once

#include "compiler_core/kernels/matmul/joined_problem.h"
#include "compiler_core/kernels/wgmma/wgmma_matmul.h"

namespace kiln {

// `bn` columns of a tile are those of all products of an output, side by side.
struct WgmmaJoinedSchedule : WgmmaMatmulSchedule {
  static constexpr std::string_view kTemplate = "cuda.products.wgmma";
};

// "cuda.products.wgmma".
const KernelTemplate& wgmma_joined();

}  // namespace kiln
