// Convolution kernels: implicit products with an elementwise epilogue; see templates/convolution.h.
#pragma once

#include "compiler_core/codegen/lower.h"
#include "compiler_core/tune/cpu/space_convolution.h"

namespace kiln {

// REQUIRES: check_printable(graph), the guarantees of kConvolution. kInvalidArgument when the
// schedule does not fit the problem.
Result<Source> lower_convolution(const Graph& graph, const ConvolutionSchedule& schedule);

}  // namespace kiln
