#include "compiler_core/passes/passes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "compiler_core/passes/constant_value.h"
#include "compiler_core/passes/joined_pads.h"
#include "compiler_core/passes/rewrite.h"

namespace kiln {
namespace {

// Significant bits of the integers a dtype holds exactly.
int integer_bits(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 53;
    case DType::kF32:
      return 24;
    case DType::kF16:
      return 11;
    case DType::kBF16:
      return 8;
    case DType::kF8E4M3:
      return 4;
    case DType::kF8E5M2:
      return 3;
    case DType::kI64:
      return 63;
    case DType::kI32:
      return 31;
    case DType::kI16:
      return 15;
    case DType::kU8:
      return 8;
    case DType::kI8:
      return 7;
    case DType::kBool:
      return 1;
    case DType::kF8E8M0:
      return 0;
  }
  return 0;
}

// Every value of `from` is a value of `to`.
bool holds_exactly(DType to, DType from) {
  if (from == to) return true;
  if (to == DType::kBool || to == DType::kF8E8M0) return false;
  if (from == DType::kBool) return true;
  if (!is_float(from)) {
    const bool loses_sign = to == DType::kU8;  // the only unsigned type
    return !loses_sign && integer_bits(from) <= integer_bits(to);
  }
  if (!is_float(to)) return false;
  if (to == DType::kF64) return true;
  return to == DType::kF32 && from != DType::kF64;
}

constexpr size_t kMaxFlattened = 64;  // operands of a concat inside a concat

bool is_power_of_two(double value) {
  int exponent = 0;
  return std::isfinite(value) && std::fabs(std::frexp(value, &exponent)) == 0.5;
}

// 1 / value, when multiplying by it gives the bits that dividing by value gives.
std::optional<double> exact_reciprocal(DType dtype, double value) {
  const double least = dtype == DType::kF64 ? 0x1p-1000 : 0x1p-120;
  if (!is_power_of_two(value) || std::fabs(value) < least || std::fabs(value) > 1 / least)
    return std::nullopt;
  return 1 / value;
}

// The rules, as a smart constructor: `make` is what a node with these operands simplifies to. Every
// rule leads to fewer or simpler nodes, so the recursion ends after a few steps.
class Simplifier {
 public:
  explicit Simplifier(GraphBuilder& builder) : b_(builder) {}

  NodeId make(const Node& node, std::vector<NodeId> operands) {
    switch (traits(node.op).kind) {
      case OpKind::kUnary:
      case OpKind::kBinary:
      case OpKind::kCompare:
      case OpKind::kSelect:
        return elementwise(node, std::move(operands));
      case OpKind::kReduce:
        return reduce(node, operands[0]);
      case OpKind::kContract:
        if (node.op == Op::kConvolution) return emit(b_, node, std::move(operands));
        return matmul(node, std::move(operands));
      case OpKind::kIndexMap:
        if (node.op == Op::kConcat) return concat(node, operands);
        if (node.op == Op::kPad) return pad(node, operands[0]);
        if (reshapes_random(node, operands[0])) return reshaped_random(node, operands[0]);
        return emit(b_, node, std::move(operands));
      case OpKind::kGather:
        return gather(node, std::move(operands));
      case OpKind::kScan:
        // Sums of one element.
        if (node.shape[static_cast<size_t>(std::get<AxisAttr>(node.attr).axis)].is(1))
          return operands[0];
        return emit(b_, node, std::move(operands));
      case OpKind::kScatter:
        // No updates.
        if (numel(b_.shape(operands[1])).is(0)) return operands[0];
        return emit(b_, node, std::move(operands));
      case OpKind::kSource:
      case OpKind::kSort:
      case OpKind::kRandom:
      case OpKind::kCustom:
        return emit(b_, node, std::move(operands));
    }
    return kInvalidNode;
  }

 private:
  using Value = std::optional<ConstantAttr>;

  Value constant(NodeId x) const { return constant_value(b_, x); }
  bool is(NodeId x, double number) const {
    const Value value = constant(x);
    if (!value) return false;
    if (!is_float(b_.dtype(x))) return value->as_int() == static_cast<int64_t>(number);
    return std::bit_cast<uint64_t>(value->as_double()) == std::bit_cast<uint64_t>(number);
  }
  bool is_op(NodeId x, Op op) const { return b_.node(x).op == op; }
  NodeId operand(NodeId x, size_t i) const { return b_.node(x).operands[i]; }

  // Random values depend on their position in row-major order, not on the shape.
  bool reshapes_random(const Node& view, NodeId x) const {
    if (view.op != Op::kView || !is_op(x, Op::kPhilox)) return false;
    const auto& attr = std::get<ViewAttr>(view.attr);
    if (!attr.offset.is(0) || numel(view.shape) != numel(b_.shape(x))) return false;
    const std::vector<Dim> strides = contiguous_strides(view.shape);
    for (size_t i = 0; i < strides.size(); ++i)
      if (!view.shape[i].is(1) && attr.strides[i] != strides[i]) return false;
    return true;
  }
  NodeId reshaped_random(const Node& view, NodeId x) {
    return b_.philox(operand(x, 0), view.shape, std::get<PhiloxAttr>(b_.node(x).attr).stream);
  }

  NodeId number(double value, NodeId like) {
    const DType dtype = b_.dtype(like);
    return filled(b_, dtype, constant_bits(dtype, value), b_.shape(like));
  }
  NodeId unary(Op op, NodeId x) { return make({op, b_.dtype(x), b_.shape(x), {}, {}}, {x}); }
  NodeId binary(Op op, NodeId a, NodeId b) {
    return make({op, b_.dtype(a), b_.shape(a), {}, {}}, {a, b});
  }

  NodeId elementwise(const Node& node, std::vector<NodeId> operands) {
    if (const Value folded = fold(node, operands))
      return filled(b_, node.dtype, *folded, node.shape);
    // One order, so that equal nodes meet; the canonical order is chosen at the end.
    if (traits(node.op).commutative && operands[0] > operands[1])
      std::swap(operands[0], operands[1]);
    NodeId simpler = kInvalidNode;
    switch (operands.size()) {
      case 1:
        simpler = simpler_unary(node, operands[0]);
        break;
      case 2:
        simpler = simpler_binary(node, operands[0], operands[1]);
        break;
      case 3:
        simpler = simpler_select(operands[0], operands[1], operands[2]);
        break;
    }
    return simpler != kInvalidNode ? simpler : emit(b_, node, std::move(operands));
  }

  Value fold(const Node& node, const std::vector<NodeId>& operands) const {
    std::vector<ConstantAttr> values;
    std::vector<DType> dtypes;
    for (NodeId id : operands) {
      const Value value = constant(id);
      if (!value) return std::nullopt;
      values.push_back(*value);
      dtypes.push_back(b_.dtype(id));
    }
    return fold_constant(node.op, node.dtype, dtypes, values);
  }

  NodeId simpler_unary(const Node& node, NodeId x) {
    switch (node.op) {
      case Op::kCast:
        return simpler_cast(x, node.dtype);
      case Op::kNeg:
        return is_op(x, Op::kNeg) ? operand(x, 0) : kInvalidNode;
      case Op::kAbs:
        if (is_op(x, Op::kNeg)) return unary(Op::kAbs, operand(x, 0));
        return is_op(x, Op::kAbs) ? x : kInvalidNode;
      case Op::kNot:
        if (is_op(x, Op::kNot)) return operand(x, 0);
        if (is_op(x, Op::kEq)) return negated_comparison(Op::kNe, x);
        if (is_op(x, Op::kNe)) return negated_comparison(Op::kEq, x);
        return kInvalidNode;
      default:
        return kInvalidNode;
    }
  }

  NodeId negated_comparison(Op op, NodeId x) { return b_.binary(op, operand(x, 0), operand(x, 1)); }

  NodeId simpler_cast(NodeId x, DType to) {
    const DType middle = b_.dtype(x);
    if (middle == to) return x;
    if (!is_op(x, Op::kCast)) return kInvalidNode;
    const NodeId source = operand(x, 0);
    const DType from = b_.dtype(source);
    if (!holds_exactly(middle, from)) return kInvalidNode;
    if (from == to) return source;
    // Half types convert to and from f32 only; see expand_half.
    const bool direct =
        (!is_half(from) || to == DType::kF32) && (!is_half(to) || from == DType::kF32);
    return direct ? make({Op::kCast, to, b_.shape(x), {}, {}}, {source}) : kInvalidNode;
  }

  // Comparisons of a value with itself; not of floats, where a NaN differs from itself.
  NodeId against_itself(Op op, NodeId x) {
    if (is_float(b_.dtype(x))) return kInvalidNode;
    const auto everywhere = [&](DType dtype, uint64_t value) {
      return filled(b_, dtype, ConstantAttr{value}, b_.shape(x));
    };
    switch (op) {
      case Op::kSub:
      case Op::kXor:
        return everywhere(b_.dtype(x), 0);
      case Op::kEq:
      case Op::kLe:
        return everywhere(DType::kBool, 1);
      case Op::kNe:
      case Op::kLt:
        return everywhere(DType::kBool, 0);
      default:
        return kInvalidNode;
    }
  }

  NodeId simpler_binary(const Node& node, NodeId x, NodeId y) {
    if (x == y)
      if (const NodeId known = against_itself(node.op, x); known != kInvalidNode) return known;
    switch (node.op) {
      case Op::kAdd:
        return simpler_add(x, y);
      case Op::kSub:
        return simpler_sub(x, y);
      case Op::kMul:
        return simpler_mul(x, y);
      case Op::kDiv:
        return simpler_div(x, y);
      case Op::kPow:
        return simpler_pow(x, y);
      case Op::kMax:
      case Op::kMin:
        return x == y ? x : kInvalidNode;
      case Op::kAnd:
      case Op::kOr:
      case Op::kXor:
        return simpler_logic(node, x, y);
      default:
        return kInvalidNode;
    }
  }

  // The number that leaves every x unchanged when added: -0.0, since 0.0 would turn -0.0 around.
  bool adds_nothing(NodeId x) const { return is(x, is_float(b_.dtype(x)) ? -0.0 : 0.0); }

  NodeId simpler_add(NodeId x, NodeId y) {
    if (adds_nothing(x)) return y;
    if (adds_nothing(y)) return x;
    // Two negations first, or the result would depend on which operand stands where.
    if (is_op(x, Op::kNeg) && is_op(y, Op::kNeg))
      return unary(Op::kNeg, binary(Op::kAdd, operand(x, 0), operand(y, 0)));
    if (is_op(y, Op::kNeg)) return binary(Op::kSub, x, operand(y, 0));
    if (is_op(x, Op::kNeg)) return binary(Op::kSub, y, operand(x, 0));
    return joined_pads(b_, x, y);
  }

  NodeId simpler_sub(NodeId x, NodeId y) {
    if (is_op(y, Op::kNeg)) return binary(Op::kAdd, x, operand(y, 0));
    if (constant(y)) return binary(Op::kAdd, x, unary(Op::kNeg, y));
    return kInvalidNode;
  }

  NodeId simpler_mul(NodeId x, NodeId y) {
    if (is(x, 1)) return y;
    if (is(y, 1)) return x;
    if (!is_float(b_.dtype(x)) && is(x, 0)) return x;
    if (!is_float(b_.dtype(y)) && is(y, 0)) return y;
    if (is(x, -1)) return unary(Op::kNeg, y);
    if (is(y, -1)) return unary(Op::kNeg, x);
    return kInvalidNode;
  }

  NodeId simpler_div(NodeId x, NodeId y) {
    if (is(y, 1)) return x;
    if (!is_float(b_.dtype(x))) return kInvalidNode;
    if (const Value value = constant(y))
      if (const auto factor = exact_reciprocal(b_.dtype(y), value->as_double()))
        return binary(Op::kMul, x, number(*factor, y));
    if (is(x, 1)) return unary(Op::kReciprocal, y);
    return kInvalidNode;
  }

  // The exponents that ATen's pow computes by other means, and by which.
  NodeId simpler_pow(NodeId x, NodeId y) {
    if (!constant(y)) return kInvalidNode;
    if (is(y, 0)) return number(1, x);
    if (is(y, 1)) return x;
    if (is(y, 2)) return binary(Op::kMul, x, x);
    if (is(y, 3)) return binary(Op::kMul, binary(Op::kMul, x, x), x);
    if (!is_float(b_.dtype(x))) return kInvalidNode;
    if (is(y, 0.5)) return unary(Op::kSqrt, x);
    if (is(y, -0.5)) return unary(Op::kRsqrt, x);
    if (is(y, -1)) return unary(Op::kReciprocal, x);
    if (is(y, -2)) return unary(Op::kReciprocal, binary(Op::kMul, x, x));
    return kInvalidNode;
  }

  NodeId simpler_logic(const Node& node, NodeId x, NodeId y) {
    if (x == y && node.op != Op::kXor) return x;
    if (constant(x)) std::swap(x, y);
    const int64_t all = node.dtype == DType::kBool ? 1 : node.dtype == DType::kU8 ? 255 : -1;
    if (is(y, 0)) return node.op == Op::kAnd ? y : x;
    if (is(y, static_cast<double>(all)) && node.op != Op::kXor) return node.op == Op::kAnd ? x : y;
    return kInvalidNode;
  }

  NodeId simpler_select(NodeId condition, NodeId a, NodeId b) {
    if (const Value value = constant(condition)) return value->as_int() != 0 ? a : b;
    if (a == b) return a;
    if (is_op(condition, Op::kNot))
      return make({Op::kSelect, b_.dtype(a), b_.shape(a), {}, {}}, {operand(condition, 0), b, a});
    return kInvalidNode;
  }

  // The result of reducing no elements.
  ConstantAttr neutral(Op op, DType dtype) const {
    const double infinity = std::numeric_limits<double>::infinity();
    if (op == Op::kReduceSum) return constant_bits(dtype, 0);
    if (op == Op::kReduceProd)
      return is_float(dtype) ? constant_bits(dtype, 1) : ConstantAttr{uint64_t{1}};
    const bool max = op == Op::kReduceMax;
    if (is_float(dtype)) return constant_bits(dtype, max ? -infinity : infinity);
    if (dtype == DType::kU8) return {max ? uint64_t{0} : uint64_t{255}};
    const int64_t least = INT64_MIN >> (64 - 8 * size_of(dtype));
    return {static_cast<uint64_t>(max ? least : ~least)};
  }

  NodeId reduce(const Node& node, NodeId x) {
    const Shape from = b_.shape(x);
    std::vector<int> axes;
    for (int axis : std::get<ReduceAttr>(node.attr).axes) {
      if (from[static_cast<size_t>(axis)].is(0))
        return filled(b_, node.dtype, neutral(node.op, node.dtype), node.shape);
      if (!from[static_cast<size_t>(axis)].is(1)) axes.push_back(axis);
    }
    const bool extreme = node.op == Op::kReduceMax || node.op == Op::kReduceMin;
    if (const Value value = extreme ? constant(x) : std::nullopt; value && is_constant(from))
      return filled(b_, node.dtype, *value, node.shape);
    if (axes.size() != std::get<ReduceAttr>(node.attr).axes.size()) {
      const NodeId rest = axes.empty() ? x : reduce_over(node.op, x, std::move(axes));
      return b_.reshape(rest, node.shape);
    }
    return reduce_over(node.op, x, std::move(axes));
  }

  // A reduction of a reduction is one reduction over the axes of both.
  NodeId reduce_over(Op op, NodeId x, std::vector<int> axes) {
    if (!is_op(x, op)) return b_.reduce(op, x, std::move(axes));
    const NodeId source = operand(x, 0);
    std::vector<int> all = std::get<ReduceAttr>(b_.node(x).attr).axes;
    int position = 0;
    for (int axis = 0; axis < static_cast<int>(b_.shape(source).size()); ++axis) {
      const auto inner = std::get<ReduceAttr>(b_.node(x).attr).axes;
      if (std::binary_search(inner.begin(), inner.end(), axis)) continue;
      if (std::binary_search(axes.begin(), axes.end(), position++)) all.push_back(axis);
    }
    return b_.reduce(op, source, std::move(all));
  }

  // Widening both operands first changes nothing: products of half types are exact in f32, which is
  // what a matmul of half types accumulates in.
  NodeId matmul(const Node& node, std::vector<NodeId> operands) {
    if (b_.shape(operands[0]).back().is(0))
      return filled(b_, node.dtype, neutral(Op::kReduceSum, node.dtype), node.shape);
    const auto widened_half = [this](NodeId x) {
      return is_op(x, Op::kCast) && b_.dtype(x) == DType::kF32 && is_half(b_.dtype(operand(x, 0)));
    };
    if (widened_half(operands[0]) && widened_half(operands[1])) {
      const NodeId a = operand(operands[0], 0), b = operand(operands[1], 0);
      if (b_.dtype(a) == b_.dtype(b)) return b_.matmul(a, b);
    }
    return emit(b_, node, std::move(operands));
  }

  NodeId concat(const Node& node, const std::vector<NodeId>& operands) {
    const int axis = std::get<AxisAttr>(node.attr).axis;
    std::vector<NodeId> parts;
    for (NodeId x : operands) {
      if (b_.shape(x)[static_cast<size_t>(axis)].is(0)) continue;
      const std::vector<NodeId> inner = b_.node(x).operands;
      // The bound keeps a long chain of concats from being copied at every link.
      if (is_op(x, Op::kConcat) && std::get<AxisAttr>(b_.node(x).attr).axis == axis &&
          inner.size() <= kMaxFlattened) {
        parts.insert(parts.end(), inner.begin(), inner.end());
      } else {
        parts.push_back(x);
      }
    }
    return parts.empty() ? operands[0] : b_.concat(parts, axis);
  }

  // Rows of one number.
  NodeId gather(const Node& node, std::vector<NodeId> operands) {
    const Value value = constant(operands[0]);
    if (value && !b_.shape(operands[0])[0].is(0)) return filled(b_, node.dtype, *value, node.shape);
    return emit(b_, node, std::move(operands));
  }

  NodeId pad(const Node& node, NodeId x) {
    const auto& pad = std::get<PadAttr>(node.attr);
    const auto is_zero = [](const Dim& dim) { return dim.is(0); };
    if (std::all_of(pad.low.begin(), pad.low.end(), is_zero) &&
        std::all_of(pad.high.begin(), pad.high.end(), is_zero))
      return x;
    if (numel(b_.shape(x)).is(0)) return filled(b_, node.dtype, pad.value, node.shape);
    if (constant(x) == pad.value) return filled(b_, node.dtype, pad.value, node.shape);
    return emit(b_, node, {x});
  }

  GraphBuilder& b_;
};

}  // namespace

Result<Graph> simplify(const Graph& graph) {
  return rewrite_nodes(graph,
                       [](GraphBuilder& builder, const Node& node, std::vector<NodeId> operands) {
                         return Simplifier(builder).make(node, std::move(operands));
                       });
}

}  // namespace kiln
