// Convolutions whose window is one element are matrix products: they get the matmul family's
// kernels, with all that is known about those.
#pragma once

#include "compiler_core/ir/graph.h"

namespace kiln {

// Such convolutions with stride 1 and no padding: weights [o, c] times [c, positions], for each
// image and group. Others are left as they are.
Result<Graph> pointwise_convolutions(const Graph& graph);

}  // namespace kiln
