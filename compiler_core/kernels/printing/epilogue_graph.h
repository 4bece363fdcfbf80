// The arithmetic behind a convolution, in the axes that its kernels loop over.
#pragma once

#include "compiler_core/base/result.h"
#include "compiler_core/ir/graph.h"

namespace kiln {

struct EpilogueGraph {
  Graph graph;     // one output, of shape `space`
  NodeId product;  // stands for the product's result
};

// `workload` with its product (or the View of it that puts its channels last) replaced by an input
// behind all others, and everything of its shape reshaped to `space`, which has as many elements in
// the same order: spatial axes become one, so that a vector of positions may cross the end of a row. A View that does not read
// them as one stands on a View and divides.
// REQUIRES: `workload` keeps the rules of kMatmul or kConvolution, `product` is its product.
Result<EpilogueGraph> epilogue_graph(const Graph& workload, NodeId product, const Shape& space);

}  // namespace kiln
