#include "compiler_core/passes/constant_value.h"

#include <cmath>

#include "compiler_core/ir/interpreter.h"

namespace kiln {
namespace {

bool unspecified(Op op, DType dtype, std::span<const DType> dtypes,
                 std::span<const ConstantAttr> operands) {
  if ((op == Op::kDiv || op == Op::kRem) && !is_float(dtype)) return operands[1].as_int() == 0;
  return op == Op::kCast && is_float(dtypes[0]) && is_integer(dtype) &&
         !fits_integer(dtype, operands[0].as_double());
}

template <class Nodes>
std::optional<ConstantAttr> value_of(const Nodes& nodes, NodeId x) {
  const Node* node = &nodes.node(x);
  while (node->op == Op::kView) node = &nodes.node(node->operands[0]);
  if (node->op != Op::kConstant) return std::nullopt;
  return std::get<ConstantAttr>(node->attr);
}

}  // namespace

bool fits_integer(DType dtype, double value) {
  const double limit = std::ldexp(1.0, static_cast<int>(8 * size_of(dtype)) - 1);
  const double whole = std::trunc(value);
  return dtype == DType::kU8 ? whole >= 0 && whole < 256 : whole >= -limit && whole < limit;
}

std::optional<ConstantAttr> constant_value(const GraphBuilder& builder, NodeId x) {
  return value_of(builder, x);
}
std::optional<ConstantAttr> constant_value(const Graph& graph, NodeId x) {
  return value_of(graph, x);
}

NodeId filled(GraphBuilder& builder, DType dtype, ConstantAttr value, Shape shape) {
  const NodeId scalar = builder.add({Op::kConstant, dtype, {}, {}, value});
  std::vector<Dim> strides(shape.size(), Dim(0));
  return builder.view(scalar, std::move(shape), std::move(strides), 0);
}

std::optional<ConstantAttr> fold_constant(Op op, DType dtype, std::span<const DType> dtypes,
                                          std::span<const ConstantAttr> operands) {
  if (unspecified(op, dtype, dtypes, operands)) return std::nullopt;
  GraphBuilder builder;
  Node node{op, dtype, {}, {}, {}};
  for (size_t i = 0; i < operands.size(); ++i)
    node.operands.push_back(builder.add({Op::kConstant, dtypes[i], {}, {}, operands[i]}));
  const NodeId result = builder.add(std::move(node));
  auto graph = builder.finish({result});
  if (!graph) return std::nullopt;
  const auto values = interpret(*graph, {});
  if (!values) return std::nullopt;
  const Tensor& value = values->front();
  if (is_float(dtype)) return constant_bits(dtype, value.get(0));
  return ConstantAttr{static_cast<uint64_t>(value.get_int(0))};
}

}  // namespace kiln
