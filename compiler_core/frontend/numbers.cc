#include "compiler_core/frontend/numbers.h"

#include <algorithm>
#include <array>

#include "compiler_core/frontend/decompositions.h"

namespace kiln {
namespace {

struct NumberOp {
  std::string_view name;
  size_t operands;
  Op op;
  bool is_float;  // whatever its operands are
};
constexpr auto kOps = std::to_array<NumberOp>({
    {"_operator.add", 2, Op::kAdd, false},
    {"_operator.sub", 2, Op::kSub, false},
    {"_operator.mul", 2, Op::kMul, false},
    {"_operator.neg", 1, Op::kNeg, false},
    {"_operator.truediv", 2, Op::kDiv, true},
    {"torch.sym_float", 1, Op::kCast, true},
    {"torch.sym_max", 2, Op::kMax, false},
    {"torch.sym_min", 2, Op::kMin, false},
});

NodeId operand_of(GraphBuilder& b, const NamedValues& values, const Argument& argument) {
  if (const auto* size = std::get_if<Dim>(&argument)) return size_value(b, *size, DType::kI64);
  if (const auto* real = std::get_if<double>(&argument)) return b.constant(DType::kF64, *real);
  const auto* number = std::get_if<NumberName>(&argument);
  const NodeId found = number == nullptr ? kInvalidNode : values.find_number(number->name);
  if (found == kInvalidNode) return found;
  return b.cast(found, is_float(b.dtype(found)) ? DType::kF64 : DType::kI64);
}

// Of a tensor whose sizes only the graph knows, where nodes compute them.
NodeId size_of(GraphBuilder& b, NamedValues& values, const ExportedNode& node) {
  const auto* name =
      node.inputs.size() == 2 ? std::get_if<TensorName>(&node.inputs[0].value) : nullptr;
  const auto* axis = name != nullptr ? std::get_if<Dim>(&node.inputs[1].value) : nullptr;
  const NodeId tensor = axis != nullptr ? values.find(name->name) : kInvalidNode;
  if (tensor == kInvalidNode || !axis->is_constant()) return kInvalidNode;
  const Shape& shape = b.shape(tensor);
  const auto rank = static_cast<int64_t>(shape.size());
  const int64_t index = axis->constant() < 0 ? axis->constant() + rank : axis->constant();
  if (index < 0 || index >= rank) return kInvalidNode;
  return size_value(b, shape[static_cast<size_t>(index)], DType::kI64);
}

}  // namespace

NodeId number_of(GraphBuilder& b, NamedValues& values, const ExportedNode& node) {
  if (node.target == "torch.ops.aten.sym_size.int") return size_of(b, values, node);
  const auto known = std::ranges::find(kOps, node.target, &NumberOp::name);
  if (known == kOps.end() || node.inputs.size() != known->operands) return kInvalidNode;
  std::vector<NodeId> operands;
  bool real = known->is_float;
  for (const NamedArgument& input : node.inputs) {
    operands.push_back(operand_of(b, values, input.value));
    if (operands.back() == kInvalidNode || !b.ok()) return kInvalidNode;
    real = real || is_float(b.dtype(operands.back()));
  }
  if (real)
    for (NodeId& each : operands) each = b.cast(each, DType::kF64);
  if (known->op == Op::kCast) return operands[0];
  return operands.size() == 1 ? b.unary(known->op, operands[0])
                              : b.binary(known->op, operands[0], operands[1]);
}

}  // namespace kiln
