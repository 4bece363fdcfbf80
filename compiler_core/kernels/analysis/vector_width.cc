#include "compiler_core/kernels/analysis/vector_width.h"

#include <algorithm>

namespace kiln {

int vector_bytes(const Target& target) {
  if (target.backend != Backend::kCpu) return 0;
  if (target.isa == "x86-64-v4") return 64;
  if (target.isa == "x86-64-v3") return 32;
  return 0;
}

std::vector<int> lane_choices(const Graph& graph, const Target& target) {
  // Where rows are reduced, values outside their space are one a row: no loop is about them.
  const auto reduce = std::find_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node& n) {
    return traits(n.op).kind == OpKind::kReduce &&
           std::get<ReduceAttr>(n.attr).axes.back() + 1 ==
               static_cast<int>(graph.node(n.operands[0]).shape.size());
  });
  const auto in_loop = [&](const Node& node) {
    return reduce == graph.nodes().end() ||
           numel(node.shape) == numel(graph.node(reduce->operands[0]).shape);
  };
  const bool wide = std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) {
    return size_of(node.dtype) == 8 && (is_elementwise(node.op) || node.op == Op::kInput) &&
           in_loop(node);
  });
  const int native = vector_bytes(target) / (wide ? 8 : 4);
  std::vector<int> choices = {native};
  if (native > 8) choices.push_back(native / 2);
  if (wide && native < 16) choices.push_back(native * 2);
  return choices;
}

}  // namespace kiln
