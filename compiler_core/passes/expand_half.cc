#include "compiler_core/passes/passes.h"

#include <algorithm>

#include "compiler_core/passes/rewrite.h"

namespace kiln {
namespace {

bool computes(Op op) {
  const OpKind kind = traits(op).kind;
  return is_elementwise(op) || kind == OpKind::kReduce || kind == OpKind::kScan;
}

NodeId widen(GraphBuilder& builder, NodeId x) {
  return is_half(builder.dtype(x)) ? builder.cast(x, DType::kF32) : x;
}

NodeId expand(GraphBuilder& builder, const Node& node, std::vector<NodeId> operands) {
  const auto touches_half = [&builder](NodeId id) { return is_half(builder.dtype(id)); };
  const bool half =
      is_half(node.dtype) || std::any_of(operands.begin(), operands.end(), touches_half);
  if (!half) return emit(builder, node, std::move(operands));
  if (node.op == Op::kConstant || node.op == Op::kIota) {
    Node wide = node;
    wide.dtype = DType::kF32;
    // The value was rounded to the half type, so f32 holds it exactly.
    return builder.cast(builder.add(std::move(wide)), node.dtype);
  }
  if (!computes(node.op)) return emit(builder, node, std::move(operands));
  for (NodeId& operand : operands) operand = widen(builder, operand);
  if (node.op == Op::kCast) {
    const bool narrows = is_half(node.dtype);
    const NodeId wide = narrows ? builder.cast(operands[0], DType::kF32) : operands[0];
    return builder.cast(wide, node.dtype);
  }
  Node wide = node;
  if (is_half(node.dtype)) wide.dtype = DType::kF32;
  wide.operands = std::move(operands);
  return builder.cast(builder.add(std::move(wide)), node.dtype);
}

}  // namespace

Result<Graph> expand_half(const Graph& graph) {
  const auto half = [](const Node& node) { return is_half(node.dtype); };
  const auto nodes = graph.nodes();
  if (std::none_of(nodes.begin(), nodes.end(), half)) return graph;
  return rewrite_nodes(graph, expand);
}

}  // namespace kiln
