#include "compiler_core/frontend/expr.h"

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

}  // namespace kiln
