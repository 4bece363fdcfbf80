// Convolutions whose window is one element are matrix products: they get the matmul family's
// kernels, with all that is known about those.
#pragma once

#include "compiler_core/ir/graph.h"

namespace kiln {

// Of one kernel: such a convolution, with stride 1 and no padding, becomes weights [o, c] times
// [c, positions] for each image and group, and outputs of its shape are reshaped to the product's.
// (Not sooner: while kernels are cut, everything around a convolution stands in its shape.) Others
// are left as they are.
Result<Graph> pointwise_convolutions(const Graph& graph);

}  // namespace kiln
