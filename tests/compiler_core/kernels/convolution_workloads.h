// Convolutions as the planner hands them to templates, for the tests of the kernels.
#pragma once

#include "compiler_core/ir/builder.h"
#include "compiler_core/plan/workload.h"

namespace kiln::testing {

// The workload of `output`, in normal form. A failure of the test where it is no kConvolution.
Workload planned(GraphBuilder& b, NodeId output);

// Two axes, with the same stride and as many zeros on every side.
ConvolutionAttr padded(int64_t stride, int64_t zeros, int64_t groups = 1);

// Image and weights of `dtype`; results too, rounded to it where it is a half.
Workload plain(DType dtype, Shape x, Shape w, ConvolutionAttr attr);

}  // namespace kiln::testing
