#include "compiler_core/plan/fusion/materialised_values.h"

#include <utility>
#include <vector>

#include "compiler_core/ir/affine.h"

namespace kiln {
namespace {

// Axes as (size, stride), merged where they are traversed as one: equal lists read a buffer alike.
using Traversal = std::vector<std::pair<Dim, Dim>>;
void append(Traversal& walk, const Dim& size, const Dim& stride) {
  if (size.is(1)) return;
  if (!walk.empty() && walk.back().second == stride * size) {
    walk.back() = {walk.back().first * size, stride};
  } else {
    walk.emplace_back(size, stride);
  }
}

}  // namespace

ReductionSizes reduction_sizes(const Graph& graph, const Node& reduce) {
  const Shape& shape = graph.node(reduce.operands[0]).shape;
  const auto& axes = std::get<ReduceAttr>(reduce.attr).axes;
  ReductionSizes sizes;
  for (int i = 0; i < static_cast<int>(shape.size()); ++i) {
    Dim& part = i < axes.front() ? sizes.batch : i > axes.back() ? sizes.kept : sizes.reduced;
    part = part * shape[static_cast<size_t>(i)];
  }
  return sizes;
}

bool is_reshape(const Graph& graph, const Node& view) {
  return reads_in_order(graph.node(view.operands[0]).shape, view.shape,
                        std::get<ViewAttr>(view.attr));
}

bool is_spread(const Node& view, const ReductionSizes& sizes) {
  const auto& attr = std::get<ViewAttr>(view.attr);
  if (!attr.offset.is(0)) return false;
  Traversal reads, expected;
  for (size_t i = 0; i < view.shape.size(); ++i) append(reads, view.shape[i], attr.strides[i]);
  append(expected, sizes.batch, sizes.kept);
  append(expected, sizes.reduced, 0);
  append(expected, sizes.kept, 1);
  return reads == expected;
}

}  // namespace kiln
