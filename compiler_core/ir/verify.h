// The executable definition of a valid graph: arity, dtypes, shapes, bounds of views. Run on every
// node a builder adds, and over whole graphs after each pass in debug builds and tests.
#pragma once

#include <span>

#include "compiler_core/ir/graph.h"

namespace kiln {

// Whether `node` is valid given the nodes before it. kInvalidArgument names op and rule.
Status verify_node(const Node& node, std::span<const Node> earlier,
                   std::span<const Symbol> symbols);
Status verify(const Graph& graph);

// The shape of a convolution of x [n, channels, spatial...] with w [o, channels/groups, window...].
// kInvalidArgument says which rule is broken; for a spatial size that is known only at run time,
// the stride has to divide the coefficients of the symbols.
Result<Shape> convolution_shape(const Shape& x, const Shape& w, const ConvolutionAttr& attr);

// floor(room / stride) + 1: how many windows begin in a place and `room` more. kInvalidArgument:
// that is no polynomial. REQUIRES: stride is at least 1.
Result<Dim> count_windows(const Dim& room, int64_t stride);

}  // namespace kiln
