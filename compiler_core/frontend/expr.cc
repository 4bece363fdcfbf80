#include "compiler_core/frontend/expr.h"

#include <cmath>

namespace kiln {
namespace {

Expr widened(Expr x, const Shape& shape) {
  return x.shape() == shape ? x : x.broadcast(shape);
}

}  // namespace

Expr Expr::sum(const std::vector<int>& axes, bool keep) const {
  return {b, axes.empty() ? id : b->reduce(Op::kReduceSum, id, axes, keep)};
}

Expr apply(Op op, Expr x) {
  return {x.b, x.b->unary(op, x.id)};
}

Expr apply(Op op, Expr x, Expr y) {
  const Shape shape = broadcast_shapes(*x.b, x.shape(), y.shape());
  return {x.b, x.b->binary(op, widened(x, shape).id, widened(y, shape).id)};
}

Expr choose(Expr condition, Expr x, Expr y) {
  GraphBuilder& b = *x.b;
  const Shape sides = broadcast_shapes(b, x.shape(), y.shape());
  const Shape shape = broadcast_shapes(b, condition.shape(), sides);
  return {&b, b.select(widened(condition, shape).id, widened(x, shape).id, widened(y, shape).id)};
}

Expr sign(Expr x) {
  return apply(Op::kSign, is_float(x.dtype()) ? choose(x == x, x, 0) : x);
}

Expr p_norm(Expr d, double p, const std::vector<int>& axes, bool keep) {
  GraphBuilder& b = *d.b;
  const Expr a = abs(d);
  if (axes.empty()) return a;
  if (std::isinf(p))
    return {&b, b.reduce(p > 0 ? Op::kReduceMax : Op::kReduceMin, a.id, axes, keep)};
  if (p == 0) return (a != 0).cast(d.dtype()).sum(axes, keep);
  if (p == 1) return a.sum(axes, keep);
  if (p == 2) return sqrt((a * a).sum(axes, keep));
  return apply(Op::kPow, apply(Op::kPow, a, a.like(p)).sum(axes, keep),
               a.sum(axes, keep).like(1 / p));
}

}  // namespace kiln
