// The exact GELU of ExpressionPrinter. A program has it as separate operations, in the order that its
// author or PyTorch wrote; printed as one function it takes 9 instructions instead of 21.
#include <algorithm>
#include <array>

#include "compiler_core/kernels/printing/expression.h"

namespace kiln {

// Whether the node is an operation in f32 that only one other node reads, so that it need not be printed.
bool ExpressionPrinter::is_step(NodeId id, Op op) const {
  const Node& node = graph_.node(id);
  return node.op == op && node.dtype == DType::kF32 && reads_[static_cast<size_t>(id)] == 1 &&
         !bound_.contains(id) && !buffers_.contains(id);
}

// Whether the node is this constant, or a View of it.
bool ExpressionPrinter::is_scalar(NodeId id, float value) const {
  const Node& node = graph_.node(id);
  const Node& source = node.op == Op::kView ? graph_.node(node.operands[0]) : node;
  return source.op == Op::kConstant && source.dtype == DType::kF32 &&
         static_cast<float>(std::get<ConstantAttr>(source.attr).as_double()) == value;
}

std::optional<NodeId> ExpressionPrinter::gelu_operand(NodeId id) const {
  const Node& node = graph_.node(id);
  if (node.op != Op::kMul || node.dtype != DType::kF32) return std::nullopt;
  // Whether an operand is the constant and the other one satisfies `rest`.
  const auto has = [&](NodeId from, float constant, const auto& rest) {
    const auto& operands = graph_.node(from).operands;
    return (is_scalar(operands[0], constant) && rest(operands[1])) ||
           (is_scalar(operands[1], constant) && rest(operands[0]));
  };
  const auto is_sum = [&](NodeId sum, NodeId x) {
    return is_step(sum, Op::kAdd) && has(sum, 1, [&](NodeId erf) {
             if (!is_step(erf, Op::kErf)) return false;
             const NodeId scaled = graph_.node(erf).operands[0];
             return is_step(scaled, Op::kMul) &&
                    has(scaled, 0x1.6a09e6p-1F, [&](NodeId from) { return from == x; });
           });
  };
  // A product of three is a product of one of them and the product of the others.
  for (size_t k : {0, 1}) {
    const NodeId pair = node.operands[k];
    if (!is_step(pair, Op::kMul)) continue;
    std::array<NodeId, 3> factors{node.operands[1 - k], graph_.node(pair).operands[0],
                                  graph_.node(pair).operands[1]};
    std::ranges::sort(factors);
    do {
      if (is_scalar(factors[0], 0.5F) && is_sum(factors[1], factors[2])) return factors[2];
    } while (std::ranges::next_permutation(factors).found);
  }
  return std::nullopt;
}

}  // namespace kiln
