// Elementwise arithmetic, comparisons, logic and conversions.
#include <algorithm>
#include <array>
#include <cmath>

#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

const Shape& shape_of(const GraphBuilder& b, const Operand& operand) {
  static const Shape kScalar;
  return operand.number ? kScalar : b.shape(operand.id);
}

// ATen's kernels for half types take a number or scalar at f32 precision; a core node of the half
// type would round it first.
bool loses_precision(const GraphBuilder& b, const Operand& operand, DType type) {
  if (!is_half(type)) return false;
  if (operand.number)
    return constant_bits(type, operand.number->value).as_double() !=
           constant_bits(DType::kF32, operand.number->value).as_double();
  return b.shape(operand.id).empty() && b.dtype(operand.id) != type;
}

// Adding and multiplying truth values is their logic.
Op for_bool(Op op) {
  switch (op) {
    case Op::kAdd:
    case Op::kMax:
      return Op::kOr;
    case Op::kMul:
    case Op::kMin:
      return Op::kAnd;
    default:
      return op;
  }
}

// `op` of two operands that promote to `type`.
NodeId apply(GraphBuilder& b, Op op, const Operand& x, const Operand& y, DType type) {
  const Shape shape = broadcast_shapes(b, shape_of(b, x), shape_of(b, y));
  const bool widen = loses_precision(b, x, type) || loses_precision(b, y, type);
  const DType compute = widen ? DType::kF32 : type;
  const auto prepare = [&](const Operand& operand) {
    // A tensor is first what it was promoted to; only scalars keep their precision.
    if (operand.number || b.shape(operand.id).empty())
      return materialise(b, operand, compute, shape);
    return b.cast(materialise(b, operand, type, shape), compute);
  };
  const NodeId left = prepare(x), right = prepare(y);
  return b.cast(b.binary(type == DType::kBool ? for_bool(op) : op, left, right), type);
}

NodeId apply_promoted(GraphBuilder& b, Op op, const Operand& x, const Operand& y) {
  return apply(b, op, x, y, result_type(b, std::array{x, y}));
}

bool is_one(const Number& number) {
  return number.value == 1 && number.integer.is_constant();
}

// self + alpha * other, and the like for subtraction.
NodeId add_scaled(Call& c, Op op, const Operand& x, const Operand& y) {
  GraphBuilder& b = c.b;
  if (!b.ok()) return kInvalidNode;
  const DType type = result_type(b, std::array{x, y});
  if (op == Op::kSub && type == DType::kBool)
    return c.invalid("subtraction of bool tensors; use logical_xor");
  if (!c.has("alpha")) return apply(b, op, x, y, type);
  const Number alpha = c.number("alpha");
  if (is_one(alpha)) return apply(b, op, x, y, type);
  // In f32 for half types, rounded once.
  const DType compute = compute_type(type);
  const Shape shape = broadcast_shapes(b, shape_of(b, x), shape_of(b, y));
  const NodeId left = b.cast(materialise(b, x, type, shape), compute);
  const NodeId right = b.cast(materialise(b, y, type, shape), compute);
  const NodeId factor = b.broadcast(scalar(b, compute, alpha), shape);
  return b.cast(b.binary(op, left, b.binary(Op::kMul, right, factor)), type);
}

Values add(Call& c) {
  return {add_scaled(c, Op::kAdd, c.operand("self"), c.operand("other"))};
}
Values sub(Call& c) {
  return {add_scaled(c, Op::kSub, c.operand("self"), c.operand("other"))};
}
Values rsub(Call& c) {
  return {add_scaled(c, Op::kSub, c.operand("other"), c.operand("self"))};
}

template <Op op>
Values promoted(Call& c) {
  const Operand x = c.operand("self"), y = c.operand("other");
  if (!c.ok()) return {};
  return {apply_promoted(c.b, op, x, y)};
}

// Quotient of integers towards minus infinity.
NodeId floor_quotient(GraphBuilder& b, NodeId x, NodeId y) {
  const NodeId quotient = b.binary(Op::kDiv, x, y);
  const NodeId rest = b.binary(Op::kSub, x, b.binary(Op::kMul, quotient, y));
  const NodeId zero = constant_like(b, rest, 0);
  const NodeId signs_differ =
      b.binary(Op::kXor, b.binary(Op::kLt, rest, zero), b.binary(Op::kLt, y, zero));
  const NodeId inexact = b.binary(Op::kAnd, b.binary(Op::kNe, rest, zero), signs_differ);
  return b.select(inexact, b.binary(Op::kSub, quotient, constant_like(b, quotient, 1)), quotient);
}

// The same of floats, as ATen: from the remainder, so that a quotient that rounds up to a whole
// number does not skip one.
Expr floor_quotient_of_floats(Expr x, Expr y) {
  const Expr rest = kiln::apply(Op::kRem, x, y), quotient = (x - rest) / y;
  const Expr inexact = (rest != 0) & ((y < 0) != (rest < 0));
  const Expr whole = choose(inexact, quotient - 1, quotient), down = floor(whole);
  const Expr rounded = choose(whole - down > 0.5, down + 1, down);
  // A zero has the sign of the quotient.
  const Expr zero = (x / y) * 0;
  return choose(y == 0, x / y, choose(whole == 0, zero, rounded));
}

NodeId floor_division(Call& c, const Operand& x, const Operand& y) {
  GraphBuilder& b = c.b;
  const DType type = result_type(b, std::array{x, y});
  if (type == DType::kBool) return c.unsupported("floor division of bool is not covered");
  const Shape shape = broadcast_shapes(b, shape_of(b, x), shape_of(b, y));
  const DType compute = compute_type(type);
  const NodeId left = b.cast(materialise(b, x, type, shape), compute);
  const NodeId right = b.cast(materialise(b, y, type, shape), compute);
  if (!is_float(type)) return floor_quotient(b, left, right);
  return b.cast(floor_quotient_of_floats({&b, left}, {&b, right}).id, type);
}

Values divide(Call& c) {
  GraphBuilder& b = c.b;
  const Operand x = c.operand("self"), y = c.operand("other");
  const std::string_view rounding = c.text("rounding_mode", "");
  if (!c.ok()) return {};
  const DType type = result_type(b, std::array{x, y});
  if (rounding.empty()) return {apply(b, Op::kDiv, x, y, to_float_type(type))};
  if (is_float(type) && rounding == "trunc") {
    const DType compute = compute_type(type);
    const NodeId quotient =
        apply(b, Op::kDiv, {b.cast(materialise(b, x, type, shape_of(b, x)), compute), {}},
              {b.cast(materialise(b, y, type, shape_of(b, y)), compute), {}}, compute);
    return {b.cast(b.unary(Op::kTrunc, quotient), type)};
  }
  if (rounding == "floor") return {floor_division(c, x, y)};
  if (type == DType::kBool) return {c.unsupported("integer division of bool is not covered")};
  const Shape shape = broadcast_shapes(b, shape_of(b, x), shape_of(b, y));
  const NodeId left = materialise(b, x, type, shape), right = materialise(b, y, type, shape);
  if (rounding == "trunc") return {b.binary(Op::kDiv, left, right)};
  return {c.invalid("there is no rounding mode '" + std::string(rounding) + "'")};
}

Values floor_divide(Call& c) {
  const Operand x = c.operand("self"), y = c.operand("other");
  if (!c.ok()) return {};
  return {floor_division(c, x, y)};
}

// Python's %: the result has the divisor's sign.
Values remainder(Call& c) {
  GraphBuilder& b = c.b;
  const Operand x = c.operand("self"), y = c.operand("other");
  if (!c.ok()) return {};
  const DType type = result_type(b, std::array{x, y}), compute = compute_type(type);
  const Shape shape = broadcast_shapes(b, shape_of(b, x), shape_of(b, y));
  const NodeId left = b.cast(materialise(b, x, type, shape), compute);
  const NodeId right = b.cast(materialise(b, y, type, shape), compute);
  const NodeId rest = b.binary(Op::kRem, left, right);
  const NodeId zero = constant_like(b, rest, 0);
  const NodeId signs_differ =
      b.binary(Op::kXor, b.binary(Op::kLt, rest, zero), b.binary(Op::kLt, right, zero));
  const NodeId wrong = b.binary(Op::kAnd, b.binary(Op::kNe, rest, zero), signs_differ);
  return {b.cast(b.select(wrong, b.binary(Op::kAdd, rest, right), rest), type)};
}

// ATen writes out the small exponents.
NodeId power_of(GraphBuilder& b, NodeId x, const Number& exponent) {
  const double value = exponent.value;
  if (value == 0) return constant_like(b, x, 1);
  if (value == 1) return x;
  if (value == 2) return b.binary(Op::kMul, x, x);
  if (value == 3) return b.binary(Op::kMul, b.binary(Op::kMul, x, x), x);
  if (is_float(b.dtype(x))) {
    if (value == 0.5) return b.unary(Op::kSqrt, x);
    if (value == -0.5) return b.unary(Op::kRsqrt, x);
    if (value == -1) return b.unary(Op::kReciprocal, x);
    if (value == -2) return b.unary(Op::kReciprocal, b.binary(Op::kMul, x, x));
  }
  return b.binary(Op::kPow, x, b.broadcast(scalar(b, b.dtype(x), exponent), b.shape(x)));
}

Values pow_number(Call& c) {
  GraphBuilder& b = c.b;
  const Operand x{c.tensor("self"), {}}, exponent{kInvalidNode, c.number("exponent")};
  if (!c.ok()) return {};
  if (!exponent.number->integer.is_constant())
    return {c.unsupported("a symbolic exponent is not covered")};
  const DType type = result_type(b, std::array{x, exponent});
  if (type == DType::kBool) return {c.unsupported("powers of bool are not covered")};
  if (is_integer(type) && exponent.number->value < 0)
    return {c.invalid("integers to negative powers are not allowed")};
  const DType compute = compute_type(type);
  const NodeId base = b.cast(b.cast(x.id, type), compute);
  return {b.cast(power_of(b, base, *exponent.number), type)};
}

Values pow_tensor(Call& c) {
  GraphBuilder& b = c.b;
  const Operand x = c.operand("self"), y = c.operand("exponent");
  if (!c.ok()) return {};
  const DType type = result_type(b, std::array{x, y});
  if (type == DType::kBool) return {c.unsupported("powers of bool are not covered")};
  return {apply(b, Op::kPow, x, y, type)};
}

// Comparisons happen in the promoted dtype and give bool.
NodeId compare(GraphBuilder& b, Op op, const Operand& x, const Operand& y) {
  const DType type = result_type(b, std::array{x, y});
  const Shape shape = broadcast_shapes(b, shape_of(b, x), shape_of(b, y));
  return b.binary(op, materialise(b, x, type, shape), materialise(b, y, type, shape));
}

template <Op op, bool swapped = false>
Values comparison(Call& c) {
  const Operand x = c.operand("self"), y = c.operand("other");
  if (!c.ok()) return {};
  return {swapped ? compare(c.b, op, y, x) : compare(c.b, op, x, y)};
}

template <Op op>
Values logical(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = b.cast(c.tensor("self"), DType::kBool);
  const NodeId y = b.cast(c.tensor("other"), DType::kBool);
  const Shape shape = broadcast_shapes(b, b.shape(x), b.shape(y));
  return {b.binary(op, b.broadcast(x, shape), b.broadcast(y, shape))};
}

Values logical_not(Call& c) {
  return {c.b.unary(Op::kNot, c.b.cast(c.tensor("self"), DType::kBool))};
}
Values bitwise_not(Call& c) {
  return {c.b.unary(Op::kNot, c.tensor("self"))};
}

template <Op op>
Values unary(Call& c) {
  return {c.b.unary(op, c.tensor("self"))};
}
// Integers become floats first.
template <Op op>
Values float_unary(Call& c) {
  const NodeId x = c.tensor("self");
  return {c.b.unary(op, c.b.cast(x, to_float_type(c.b.dtype(x))))};
}
// Integers are themselves already.
template <Op op>
Values rounding(Call& c) {
  const NodeId x = c.tensor("self");
  return {is_float(c.b.dtype(x)) ? c.b.unary(op, x) : x};
}

Values where(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId condition = b.cast(c.tensor("condition"), DType::kBool);
  const Operand x = c.operand("self"), y = c.operand("other");
  if (!c.ok()) return {};
  const DType type = result_type(b, std::array{x, y});
  const Shape sides = broadcast_shapes(b, shape_of(b, x), shape_of(b, y));
  const Shape shape = broadcast_shapes(b, b.shape(condition), sides);
  return {b.select(b.broadcast(condition, shape), materialise(b, x, type, shape),
                   materialise(b, y, type, shape))};
}

Values masked_fill(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self"), mask = b.cast(c.tensor("mask"), DType::kBool);
  const Operand value = c.operand("value");
  if (!c.ok()) return {};
  const Shape shape = broadcast_shapes(b, b.shape(x), b.shape(mask));
  return {b.select(b.broadcast(mask, shape), materialise(b, value, b.dtype(x), shape),
                   b.broadcast(x, shape))};
}

Values clamp(Call& c) {
  GraphBuilder& b = c.b;
  std::vector<Operand> operands = {{c.tensor("self"), {}}};
  const bool has_low = c.has("min"), has_high = c.has("max");
  if (has_low) operands.push_back(c.operand("min"));
  if (has_high) operands.push_back(c.operand("max"));
  if (!c.ok()) return {};
  if (operands.size() == 1) return {c.invalid("clamp needs a bound")};
  const DType type = result_type(b, operands);
  NodeId x = b.cast(operands[0].id, type);
  for (size_t i = 1; i < operands.size(); ++i) {
    const Shape shape = broadcast_shapes(b, b.shape(x), shape_of(b, operands[i]));
    const Op op = i == 1 && has_low ? Op::kMax : Op::kMin;
    x = b.binary(op, b.broadcast(x, shape), materialise(b, operands[i], type, shape));
  }
  return {x};
}

Values convert(Call& c) {
  const NodeId x = c.tensor("self");
  return {c.converted(x, c.dtype("dtype", c.b.dtype(x)))};
}
template <DType type>
Values convert_to(Call& c) {
  return {c.b.cast(c.tensor("self"), type)};
}
// The value of `self` after copy_, fill_ and zero_, in its own dtype and shape.
Values copy(Call& c) {
  const NodeId x = c.tensor("self"), source = c.tensor("src");
  return {c.b.broadcast(c.converted(source, c.b.dtype(x)), c.b.shape(x))};
}
Values fill(Call& c) {
  const NodeId x = c.tensor("self");
  const Operand value = c.operand("value");
  return {c.ok() ? materialise(c.b, value, c.b.dtype(x), c.b.shape(x)) : kInvalidNode};
}
Values zero(Call& c) {
  return {constant_like(c.b, c.tensor("self"), 0)};
}
Values convert_like(Call& c) {
  const NodeId x = c.tensor("self"), other = c.tensor("other");
  return {c.converted(x, c.b.dtype(other))};
}

Values signum(Call& c) {
  const Expr x = tensor(c, "self");
  if (!c.ok()) return {};
  return {sign(x).id};
}

constexpr Lowering kArithmeticLowerings[] = {
    {"aten.add.Tensor", add},
    {"aten.add.Scalar", add},
    {"aten.sub.Tensor", sub},
    {"aten.subtract.Tensor", sub},
    {"aten.sub.Scalar", sub},
    {"aten.subtract.Scalar", sub},
    {"aten.rsub.Scalar", rsub},
    {"aten.rsub.Tensor", rsub},
    {"aten.mul.Tensor", promoted<Op::kMul>},
    {"aten.multiply.Tensor", promoted<Op::kMul>},
    {"aten.mul.Scalar", promoted<Op::kMul>},
    {"aten.multiply.Scalar", promoted<Op::kMul>},
    {"aten.div.Tensor", divide},
    {"aten.true_divide.Tensor", divide},
    {"aten.divide.Tensor", divide},
    {"aten.div.Scalar", divide},
    {"aten.divide.Scalar", divide},
    {"aten.true_divide.Scalar", divide},
    {"aten.div.Tensor_mode", divide},
    {"aten.divide.Tensor_mode", divide},
    {"aten.div.Scalar_mode", divide},
    {"aten.divide.Scalar_mode", divide},
    {"aten.floor_divide.default", floor_divide},
    {"aten.floor_divide.Scalar", floor_divide},
    {"aten.remainder.Tensor", remainder},
    {"aten.remainder.Scalar", remainder},
    {"aten.remainder.Scalar_Tensor", remainder},
    {"aten.fmod.Tensor", promoted<Op::kRem>},
    {"aten.fmod.Scalar", promoted<Op::kRem>},
    {"aten.maximum.default", promoted<Op::kMax>},
    {"aten.minimum.default", promoted<Op::kMin>},
    {"aten.max.other", promoted<Op::kMax>},
    {"aten.min.other", promoted<Op::kMin>},
    {"aten.pow.Tensor_Scalar", pow_number},
    {"aten.pow.Tensor_Tensor", pow_tensor},
    {"aten.pow.Scalar", pow_tensor},
    {"aten.eq.Tensor", comparison<Op::kEq>},
    {"aten.eq.Scalar", comparison<Op::kEq>},
    {"aten.ne.Tensor", comparison<Op::kNe>},
    {"aten.not_equal.Tensor", comparison<Op::kNe>},
    {"aten.ne.Scalar", comparison<Op::kNe>},
    {"aten.not_equal.Scalar", comparison<Op::kNe>},
    {"aten.lt.Tensor", comparison<Op::kLt>},
    {"aten.less.Tensor", comparison<Op::kLt>},
    {"aten.lt.Scalar", comparison<Op::kLt>},
    {"aten.less.Scalar", comparison<Op::kLt>},
    {"aten.le.Tensor", comparison<Op::kLe>},
    {"aten.less_equal.Tensor", comparison<Op::kLe>},
    {"aten.le.Scalar", comparison<Op::kLe>},
    {"aten.less_equal.Scalar", comparison<Op::kLe>},
    {"aten.gt.Tensor", comparison<Op::kLt, true>},
    {"aten.greater.Tensor", comparison<Op::kLt, true>},
    {"aten.gt.Scalar", comparison<Op::kLt, true>},
    {"aten.greater.Scalar", comparison<Op::kLt, true>},
    {"aten.ge.Tensor", comparison<Op::kLe, true>},
    {"aten.greater_equal.Tensor", comparison<Op::kLe, true>},
    {"aten.ge.Scalar", comparison<Op::kLe, true>},
    {"aten.greater_equal.Scalar", comparison<Op::kLe, true>},
    {"aten.__and__.Tensor", promoted<Op::kAnd>},
    {"aten.__and__.Scalar", promoted<Op::kAnd>},
    {"aten.__or__.Tensor", promoted<Op::kOr>},
    {"aten.__or__.Scalar", promoted<Op::kOr>},
    {"aten.__xor__.Tensor", promoted<Op::kXor>},
    {"aten.__xor__.Scalar", promoted<Op::kXor>},
    {"aten.bitwise_and.Tensor", promoted<Op::kAnd>},
    {"aten.bitwise_and.Scalar", promoted<Op::kAnd>},
    {"aten.bitwise_and.Scalar_Tensor", promoted<Op::kAnd>},
    {"aten.bitwise_or.Tensor", promoted<Op::kOr>},
    {"aten.bitwise_or.Scalar", promoted<Op::kOr>},
    {"aten.bitwise_or.Scalar_Tensor", promoted<Op::kOr>},
    {"aten.bitwise_xor.Tensor", promoted<Op::kXor>},
    {"aten.bitwise_xor.Scalar", promoted<Op::kXor>},
    {"aten.bitwise_xor.Scalar_Tensor", promoted<Op::kXor>},
    {"aten.bitwise_not.default", bitwise_not},
    {"aten.logical_and.default", logical<Op::kAnd>},
    {"aten.logical_or.default", logical<Op::kOr>},
    {"aten.logical_xor.default", logical<Op::kXor>},
    {"aten.logical_not.default", logical_not},
    {"aten.neg.default", unary<Op::kNeg>},
    {"aten.negative.default", unary<Op::kNeg>},
    {"aten.abs.default", unary<Op::kAbs>},
    {"aten.absolute.default", unary<Op::kAbs>},
    {"aten.sign.default", signum},
    {"aten.sgn.default", signum},
    {"aten.floor.default", rounding<Op::kFloor>},
    {"aten.ceil.default", rounding<Op::kCeil>},
    {"aten.trunc.default", rounding<Op::kTrunc>},
    {"aten.fix.default", rounding<Op::kTrunc>},
    {"aten.round.default", rounding<Op::kRound>},
    {"aten.sqrt.default", float_unary<Op::kSqrt>},
    {"aten.rsqrt.default", float_unary<Op::kRsqrt>},
    {"aten.reciprocal.default", float_unary<Op::kReciprocal>},
    {"aten.exp.default", float_unary<Op::kExp>},
    {"aten.expm1.default", float_unary<Op::kExpm1>},
    {"aten.log.default", float_unary<Op::kLog>},
    {"aten.log1p.default", float_unary<Op::kLog1p>},
    {"aten.sin.default", float_unary<Op::kSin>},
    {"aten.cos.default", float_unary<Op::kCos>},
    {"aten.tan.default", float_unary<Op::kTan>},
    {"aten.tanh.default", float_unary<Op::kTanh>},
    {"aten.erf.default", float_unary<Op::kErf>},
    {"aten.where.self", where},
    {"aten.where.ScalarSelf", where},
    {"aten.where.ScalarOther", where},
    {"aten.where.Scalar", where},
    {"aten.masked_fill.Scalar", masked_fill},
    {"aten.masked_fill.Tensor", masked_fill},
    {"aten.clamp.default", clamp},
    {"aten.clip.default", clamp},
    {"aten.clamp.Tensor", clamp},
    {"aten.clip.Tensor", clamp},
    {"aten.clamp_min.default", clamp},
    {"aten.clamp_min.Tensor", clamp},
    {"aten.clamp_max.default", clamp},
    {"aten.clamp_max.Tensor", clamp},
    {"aten.to.dtype", convert},
    {"aten.to.dtype_layout", convert},
    {"aten.to.device", convert},
    {"aten.to.other", convert_like},
    {"aten.to.prim_Device", convert},
    {"aten.to.prim_dtype", convert},
    {"aten.float.default", convert_to<DType::kF32>},
    {"aten.half.default", convert_to<DType::kF16>},
    {"aten.double.default", convert_to<DType::kF64>},
    {"aten.bfloat16.default", convert_to<DType::kBF16>},
    {"aten.copy.default", copy},
    {"aten.fill.Scalar", fill},
    {"aten.fill.Tensor", fill},
    {"aten.zero.default", zero},
    {"aten.type_as.default", convert_like},
    {"aten._to_copy.default", convert},
};

}  // namespace

std::span<const Lowering> arithmetic_lowerings() {
  return kArithmeticLowerings;
}

}  // namespace kiln
