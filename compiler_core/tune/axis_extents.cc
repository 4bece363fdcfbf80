#include "compiler_core/tune/axis_extents.h"

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

}  // namespace

ScanExtent ScanExtent::of(const Graph& workload) {
  const Node& node = only_output(workload, OpKind::kScan);
  const int axis = std::get<AxisAttr>(node.attr).axis;
  ScanExtent extent{node.dtype};
  for (int i = 0; i < static_cast<int>(node.shape.size()); ++i) {
    const int64_t size = node.shape[static_cast<size_t>(i)].constant();
    (i < axis ? extent.outer : i == axis ? extent.size : extent.inner) *= size;
  }
  return extent;
}

SortExtent SortExtent::of(const Graph& workload) {
  const Node& node = only_output(workload, OpKind::kSort);
  const Node& x = workload.node(node.operands[0]);
  SortExtent extent{x.dtype, 1, x.shape.back().constant(),
                    std::get<SortAttr>(node.attr).descending};
  extent.rows = numel(x.shape).constant() / extent.size;
  return extent;
}

ScatterExtent ScatterExtent::of(const Graph& workload) {
  const Node& node = only_output(workload, OpKind::kScatter);
  ScatterExtent extent{node.dtype, std::get<ScatterAttr>(node.attr).combine};
  extent.x = argument(workload, node, 0);
  extent.index = argument(workload, node, 1);
  extent.updates = argument(workload, node, 2);
  extent.rows = node.shape[0].constant();
  extent.row = numel(node.shape).constant() / extent.rows;
  extent.count = numel(workload.node(node.operands[1]).shape).constant();
  return extent;
}

}  // namespace kiln
