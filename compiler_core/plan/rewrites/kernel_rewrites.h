// Rewrites of one kernel's graph on its way to a Workload (workload.cc has their order): they bring
// kernels that compute the same to one graph. Each returns its argument where it does not apply.
#pragma once

#include "compiler_core/ir/graph.h"

namespace kiln {

// Turns a convolution whose window is one element, with stride 1 and no padding, into the
// equivalent matmul, for the matmul family's kernels: weights [o, c] times [c, positions] for each
// image and group; outputs of its shape are reshaped to the product's. It does not run sooner,
// because during partitioning everything around a convolution has its shape.
Result<Graph> pointwise_convolutions(const Graph& graph);

// Brings a kernel's iteration space to its lowest rank: drops axes of size 1, merges neighbouring
// axes that every View traverses as one, and declares inputs in the shape in which they are read
// densely (one axis when they never are). So a kernel does not depend on how many axes a model
// writes, and code generation sees the long loops. Applies where the nodes share one iteration
// space, and to kernels of a single op (merge_single_op_axes).
Result<Graph> merge_axes(const Graph& graph);

// The same for a graph that is one scan, sort or scatter of inputs: a scan's operand becomes
// [outer, size, inner], a sort's [rows, size], a scatter's [rows, elements of one row] with an
// index of one axis.
Result<Graph> merge_single_op_axes(const Graph& graph);

}  // namespace kiln
