// Sizes of a convolution. Free functions, pure.
#pragma once

#include "compiler_core/ir/graph.h"

namespace kiln {

// The result's shape for x [n, channels, spatial...] and w [o, channels/groups, window...].
// kInvalidArgument names the rule that is broken; of a spatial size that is known only at run time
// the stride has to divide what the symbols are multiplied by.
Result<Shape> convolution_shape(const Shape& x, const Shape& w, const ConvolutionAttr& attr);

// floor(room / stride) + 1: how many windows begin in a place and `room` more. kInvalidArgument:
// that is no polynomial. REQUIRES: stride is at least 1.
Result<Dim> count_windows(const Dim& room, int64_t stride);

}  // namespace kiln
