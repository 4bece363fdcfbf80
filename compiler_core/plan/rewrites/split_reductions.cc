#include "compiler_core/plan/rewrites/graph_rewrites.h"

#include "compiler_core/passes/rewrite.h"

namespace kiln {
namespace {

// Whether no kept axis lies between two axes; one of size 1 does not count.
bool neighbours(const Shape& shape, int outer, int inner) {
  for (int axis = outer + 1; axis < inner; ++axis)
    if (!shape[static_cast<size_t>(axis)].is(1)) return false;
  return true;
}

NodeId split(GraphBuilder& builder, const Node& node, std::vector<NodeId> operands) {
  if (traits(node.op).kind != OpKind::kReduce) return emit(builder, node, std::move(operands));
  std::vector<int> axes = std::get<ReduceAttr>(node.attr).axes;
  NodeId x = operands[0];
  while (!axes.empty()) {
    std::vector<int> run = {axes.back()};
    axes.pop_back();
    while (!axes.empty() && neighbours(builder.shape(x), axes.back(), run.back())) {
      run.push_back(axes.back());
      axes.pop_back();
    }
    x = builder.reduce(node.op, x, std::move(run));
  }
  return x;
}

}  // namespace

Result<Graph> split_reductions(const Graph& graph) {
  return rewrite_nodes(graph, split);
}

}  // namespace kiln
