#include "compiler_core/plan/fusion/narrow_products.h"

#include "compiler_core/plan/workload.h"

namespace kiln {

NodeId narrow_operand(const Graph& graph, NodeId operand) {
  const Node& x = graph.node(operand);
  const NodeId cast = x.op == Op::kView ? x.operands[0] : operand;
  const NodeId narrow = stored_operand(graph, cast);
  return narrow == cast ? kInvalidNode : narrow;
}

bool is_narrow_product(const Graph& graph, const Node& product) {
  constexpr int64_t kLeastDepth = 16;
  if (product.op != Op::kMatmul) return false;
  const NodeId a = narrow_operand(graph, product.operands[0]);
  const NodeId b = narrow_operand(graph, product.operands[1]);
  if (a == kInvalidNode || b == kInvalidNode) return false;
  const Dim& depth = graph.node(product.operands[0]).shape.back();
  if (!depth.is_constant() || depth.constant() % kLeastDepth != 0) return false;
  const DType left = graph.node(a).dtype, right = graph.node(b).dtype;
  if (is_f8(left) || is_f8(right))
    return is_f8(left) && is_f8(right) && product.dtype == DType::kF32;
  return product.dtype == DType::kI32;
}

}  // namespace kiln
