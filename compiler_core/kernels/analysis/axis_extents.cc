#include "compiler_core/kernels/analysis/axis_extents.h"

#include "compiler_core/base/check.h"

namespace kiln {
namespace {

const Node& only_output(const Graph& workload, OpKind kind) {
  const Node& node = workload.node(workload.outputs()[0]);
  CHECK(traits(node.op).kind == kind, "the family's one node");
  return node;
}

int argument(const Graph& workload, const Node& node, size_t operand) {
  return std::get<InputAttr>(workload.node(node.operands[operand]).attr).index;
}

template <class Size>
Size product(const Shape& shape, size_t begin, size_t end) {
  Size size = 1;
  for (size_t i = begin; i < end; ++i) size = size * size_of_dim<Size>(shape[i]);
  return size;
}

}  // namespace

template <class Size>
ScanExtentOf<Size> ScanExtentOf<Size>::of(const Graph& workload) {
  const Node& node = only_output(workload, OpKind::kScan);
  const auto axis = static_cast<size_t>(std::get<AxisAttr>(node.attr).axis);
  return {node.dtype, product<Size>(node.shape, 0, axis), size_of_dim<Size>(node.shape[axis]),
          product<Size>(node.shape, axis + 1, node.shape.size())};
}

template <class Size>
SortExtentOf<Size> SortExtentOf<Size>::of(const Graph& workload) {
  const Node& node = only_output(workload, OpKind::kSort);
  const Node& x = workload.node(node.operands[0]);
  return {x.dtype, product<Size>(x.shape, 0, x.shape.size() - 1), size_of_dim<Size>(x.shape.back()),
          std::get<SortAttr>(node.attr).descending};
}

template <class Size>
ScatterExtentOf<Size> ScatterExtentOf<Size>::of(const Graph& workload) {
  const Node& node = only_output(workload, OpKind::kScatter);
  const Shape& index = workload.node(node.operands[1]).shape;
  ScatterExtentOf extent{node.dtype, std::get<ScatterAttr>(node.attr).combine};
  extent.x = argument(workload, node, 0);
  extent.index = argument(workload, node, 1);
  extent.updates = argument(workload, node, 2);
  extent.rows = size_of_dim<Size>(node.shape[0]);
  extent.row = product<Size>(node.shape, 1, node.shape.size());
  extent.count = product<Size>(index, 0, index.size());
  return extent;
}

template struct ScanExtentOf<int64_t>;
template struct ScanExtentOf<Dim>;
template struct SortExtentOf<int64_t>;
template struct SortExtentOf<Dim>;
template struct ScatterExtentOf<int64_t>;
template struct ScatterExtentOf<Dim>;

}  // namespace kiln
