// Sizes of a convolution. Free functions, pure.
#pragma once

#include "compiler_core/ir/graph.h"

namespace kiln {

// The result's shape for x [n, channels, spatial...] and w [o, channels/groups, window...].
// kInvalidArgument names the rule that is broken; a spatial size that is known only at run time
// needs a stride of 1.
Result<Shape> convolution_shape(const Shape& x, const Shape& w, const ConvolutionAttr& attr);

}  // namespace kiln
