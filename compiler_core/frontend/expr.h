// Expr: a node of a builder with the operators of arithmetic, so that a lowering reads like the
// formula it computes. Operands of an operator have one dtype; shapes broadcast; a number takes the
// dtype and shape of the other side. A value: two words.
#pragma once

#include <limits>
#include <vector>

#include "compiler_core/frontend/decompositions.h"

namespace kiln {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Expr {
  GraphBuilder* b = nullptr;
  NodeId id = kInvalidNode;

  DType dtype() const { return b->dtype(id); }
  Shape shape() const { return b->shape(id); }
  Expr cast(DType type) const { return {b, b->cast(id, type)}; }
  Expr broadcast(Shape to) const { return {b, b->broadcast(id, std::move(to))}; }
  Expr reshape(Shape to) const { return {b, b->reshape(id, std::move(to))}; }
  Expr slice(int axis, const Dim& start, const Dim& size) const {
    return {b, b->slice(id, axis, start, size)};
  }
  // The number in this dtype and shape.
  Expr like(double value) const { return {b, constant_like(*b, id, value)}; }
  Expr sum(const std::vector<int>& axes, bool keep = true) const;
};

Expr apply(Op op, Expr x);
Expr apply(Op op, Expr x, Expr y);

inline Expr operator+(Expr x, Expr y) {
  return apply(Op::kAdd, x, y);
}
inline Expr operator-(Expr x, Expr y) {
  return apply(Op::kSub, x, y);
}
inline Expr operator*(Expr x, Expr y) {
  return apply(Op::kMul, x, y);
}
inline Expr operator/(Expr x, Expr y) {
  return apply(Op::kDiv, x, y);
}
inline Expr operator<(Expr x, Expr y) {
  return apply(Op::kLt, x, y);
}
inline Expr operator<=(Expr x, Expr y) {
  return apply(Op::kLe, x, y);
}
inline Expr operator>(Expr x, Expr y) {
  return y < x;
}
inline Expr operator>=(Expr x, Expr y) {
  return y <= x;
}
inline Expr operator==(Expr x, Expr y) {
  return apply(Op::kEq, x, y);
}
inline Expr operator!=(Expr x, Expr y) {
  return apply(Op::kNe, x, y);
}
inline Expr operator&(Expr x, Expr y) {
  return apply(Op::kAnd, x, y);
}
inline Expr operator|(Expr x, Expr y) {
  return apply(Op::kOr, x, y);
}

inline Expr operator+(Expr x, double y) {
  return x + x.like(y);
}
inline Expr operator-(Expr x, double y) {
  return x - x.like(y);
}
inline Expr operator*(Expr x, double y) {
  return x * x.like(y);
}
inline Expr operator/(Expr x, double y) {
  return x / x.like(y);
}
inline Expr operator-(double x, Expr y) {
  return y.like(x) - y;
}
inline Expr operator/(double x, Expr y) {
  return y.like(x) / y;
}
inline Expr operator<(Expr x, double y) {
  return x < x.like(y);
}
inline Expr operator<=(Expr x, double y) {
  return x <= x.like(y);
}
inline Expr operator>(Expr x, double y) {
  return x > x.like(y);
}
inline Expr operator>=(Expr x, double y) {
  return x >= x.like(y);
}
inline Expr operator==(Expr x, double y) {
  return x == x.like(y);
}
inline Expr operator!=(Expr x, double y) {
  return x != x.like(y);
}
inline Expr operator-(Expr x) {
  return apply(Op::kNeg, x);
}
inline Expr operator!(Expr x) {
  return apply(Op::kNot, x);
}

inline Expr exp(Expr x) {
  return apply(Op::kExp, x);
}
inline Expr log(Expr x) {
  return apply(Op::kLog, x);
}
inline Expr log1p(Expr x) {
  return apply(Op::kLog1p, x);
}
inline Expr expm1(Expr x) {
  return apply(Op::kExpm1, x);
}
inline Expr sqrt(Expr x) {
  return apply(Op::kSqrt, x);
}
inline Expr rsqrt(Expr x) {
  return apply(Op::kRsqrt, x);
}
inline Expr tanh(Expr x) {
  return apply(Op::kTanh, x);
}
inline Expr abs(Expr x) {
  return apply(Op::kAbs, x);
}
inline Expr floor(Expr x) {
  return apply(Op::kFloor, x);
}
inline Expr max(Expr x, Expr y) {
  return apply(Op::kMax, x, y);
}
inline Expr min(Expr x, Expr y) {
  return apply(Op::kMin, x, y);
}
inline Expr max(Expr x, double y) {
  return max(x, x.like(y));
}
inline Expr min(Expr x, double y) {
  return min(x, x.like(y));
}
inline Expr sigmoid(Expr x) {
  return {x.b, sigmoid(*x.b, x.id)};
}
// x where the condition holds, else y.
Expr choose(Expr condition, Expr x, Expr y);
inline Expr choose(Expr condition, Expr x, double y) {
  return choose(condition, x, x.like(y));
}
inline Expr choose(Expr condition, double x, Expr y) {
  return choose(condition, y.like(x), y);
}

// -1, 0 or 1; 0 for a NaN, as torch has it.
Expr sign(Expr x);

// The transpose of a matrix.
inline Expr transposed(Expr x) {
  return {x.b, swap_axes(*x.b, x.id, 0, 1)};
}
// (sum |x|^p)^(1/p) over ascending `axes`; the limits for p = 0 and infinity.
Expr p_norm(Expr x, double p, const std::vector<int>& axes, bool keep);

inline Expr tensor(Call& c, std::string_view name) {
  return {&c.b, c.tensor(name)};
}
// In its compute type: f32 for integers, bool and half types.
inline Expr wide(Expr x) {
  return x.cast(compute_type(to_float_type(x.dtype())));
}

// `f` of the tensor `self` in its compute type, rounded once at the end, as ATen's kernels do.
template <class F>
Values in_compute_type(Call& c, F f, std::string_view name = "self") {
  const Expr x = tensor(c, name);
  if (!c.ok()) return {};
  return {f(wide(x)).cast(to_float_type(x.dtype())).id};
}

// `f` of two operands, which promote to a float dtype: computed in its compute type.
template <class F>
Values in_compute_type_of_two(Call& c, F f, std::string_view first = "self",
                              std::string_view second = "other") {
  const Operand x = c.operand(first), y = c.operand(second);
  if (!c.ok()) return {};
  const Operand both[] = {x, y};
  const DType type = to_float_type(result_type(c.b, both));
  const auto shape_of = [&](const Operand& operand) {
    return operand.number ? Shape() : c.b.shape(operand.id);
  };
  const Shape shape = broadcast_shapes(c.b, shape_of(x), shape_of(y));
  const auto prepare = [&](const Operand& operand) {
    return Expr{&c.b, materialise(c.b, operand, compute_type(type), shape)};
  };
  return {f(prepare(x), prepare(y)).cast(type).id};
}

}  // namespace kiln
