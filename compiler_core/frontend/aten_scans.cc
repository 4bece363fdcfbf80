// Scans that are no running sums, and integrals by trapezoids. Element i of such a scan is a
// reduction over the elements up to i: n^2 work without any of it being stored.

#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

constexpr int64_t kMostElements = 16384;

// x with an axis more: along `axis` the results, along `axis` + 1 what they see.
struct Triangle {
  Expr values, seen;
  int from = 0;  // the axis that is reduced
};

std::optional<Triangle> triangle(Call& c, Expr x) {
  GraphBuilder& b = c.b;
  Shape row = x.shape();
  const int axis = c.axis("dim", row.size());
  if (!c.ok()) return std::nullopt;
  const Dim size = row[static_cast<size_t>(axis)];
  if (size.is_constant() && size.constant() > kMostElements) {
    c.unsupported(
        "a scan other than a sum over more than 16384 elements is not covered: take "
        "cumsum of the logarithms, or a custom call");
    return std::nullopt;
  }
  row.insert(row.begin() + axis, Dim(1));
  Shape square = row;
  square[static_cast<size_t>(axis)] = size;
  const auto at = [&](int i) { return Expr{&b, coordinate(b, square, static_cast<size_t>(i))}; };
  return Triangle{x.reshape(row).broadcast(square), at(axis + 1) <= at(axis), axis + 1};
}

Values cumprod(Call& c) {
  const Expr x = tensor(c, "self");
  const DType type = c.dtype("dtype", is_float(x.dtype()) ? x.dtype() : DType::kI64);
  const Expr value = x.cast(compute_type(type));
  if (!c.ok()) return {};
  if (x.shape().empty()) return {x.cast(type).id};
  const auto t = triangle(c, value);
  if (!t) return {};
  const NodeId product = c.b.reduce(Op::kReduceProd, choose(t->seen, t->values, 1).id, {t->from});
  return {c.b.cast(product, type)};
}

Values logcumsumexp(Call& c) {
  GraphBuilder& b = c.b;
  const Expr x = tensor(c, "self");
  if (!c.ok() || x.shape().empty()) return {x.id};
  const auto t = triangle(c, wide(x));
  if (!t) return {};
  const Expr hidden = choose(t->seen, t->values, -kInfinity);
  const Expr greatest{&b, b.reduce(Op::kReduceMax, hidden.id, {t->from}, true)};
  // An infinite maximum would give inf - inf.
  const Expr shift = choose(abs(greatest) == kInfinity, 0, greatest);
  const Expr sum = exp(hidden - shift).sum({t->from});
  return {(log(sum) + shift).reshape(x.shape()).cast(x.dtype()).id};
}

// The extremum so far, and the last place where it stood; a NaN counts as the extremum.
template <Op op>
Values running_extremum(Call& c) {
  GraphBuilder& b = c.b;
  const Expr x = tensor(c, "self");
  if (!c.ok()) return {};
  if (x.shape().empty()) return {x.id, b.constant_int(DType::kI64, 0)};
  const Expr value = x.dtype() == DType::kBool ? x.cast(DType::kU8) : x;
  const auto t = triangle(c, value);
  if (!t) return {};
  // The first element is always seen: it stands in for those that are not.
  const Expr first{&b, b.slice(t->values.id, t->from, 0, 1)};
  const Expr found{&b, b.reduce(op, choose(t->seen, t->values, first).id, {t->from}, true)};
  const Expr here = t->seen & ((t->values == found) | (t->values != t->values));
  const Expr place{&b, coordinate(b, t->values.shape(), static_cast<size_t>(t->from))};
  const NodeId last = b.reduce(Op::kReduceMax, choose(here, place, 0).id, {t->from});
  return {found.reshape(x.shape()).cast(x.dtype()).id, last};
}

// Areas between neighbours along `axis`: of equal steps, or between the places `x`.
struct Areas {
  Expr values;
  int axis = 0;
};
std::optional<Areas> areas(Call& c) {
  GraphBuilder& b = c.b;
  const Expr y = tensor(c, "y");
  if (!c.ok() || y.shape().empty()) {
    c.invalid("the integral of a scalar");
    return std::nullopt;
  }
  const int axis = c.axis("dim", y.shape().size(), -1);
  const auto both = [&](Expr of, int along) {
    const Dim count = of.shape()[static_cast<size_t>(along)] - Dim(1);
    return std::pair(Expr{&b, b.slice(of.id, along, 0, count)},
                     Expr{&b, b.slice(of.id, along, 1, count)});
  };
  if (!c.ok() || y.shape()[static_cast<size_t>(axis)].is(0)) {
    c.unsupported("the integral of nothing is not covered");
    return std::nullopt;
  }
  const auto [left, right] = both(wide(y), axis);
  const Expr sums = left + right;
  if (!c.has("x")) return Areas{sums * (c.real("dx", 1) / 2), axis};
  const Expr x = tensor(c, "x").cast(sums.dtype());
  if (!c.ok() || (x.shape().size() != 1 && x.shape().size() != y.shape().size())) {
    c.unsupported("an integral over places of another rank is not covered");
    return std::nullopt;
  }
  const bool line = x.shape().size() == 1;
  const auto [begin, end] = both(x, line ? 0 : axis);
  Expr steps = end - begin;
  if (line) steps = {&b, b.broadcast_in(steps.id, sums.shape(), std::span(&axis, 1))};
  return Areas{steps * sums * 0.5, axis};
}
Values trapezoid(Call& c) {
  const auto a = areas(c);
  if (!a || !c.ok()) return {};
  return {a->values.sum({a->axis}, false).cast(to_float_type(c.b.dtype(c.tensor("y")))).id};
}
Values cumulative_trapezoid(Call& c) {
  const auto a = areas(c);
  if (!a || !c.ok()) return {};
  const Expr sums{&c.b, c.b.scan_sum(a->values.id, a->axis)};
  return {sums.cast(to_float_type(c.b.dtype(c.tensor("y")))).id};
}

constexpr Lowering kScanLowerings[] = {
    {"aten.cumprod.default", cumprod},
    {"aten.logcumsumexp.default", logcumsumexp},
    {"aten.cummax.default", running_extremum<Op::kReduceMax>},
    {"aten.cummin.default", running_extremum<Op::kReduceMin>},
    {"aten.trapezoid.x", trapezoid},
    {"aten.trapezoid.dx", trapezoid},
    {"aten.trapz.x", trapezoid},
    {"aten.trapz.dx", trapezoid},
    {"aten.cumulative_trapezoid.x", cumulative_trapezoid},
    {"aten.cumulative_trapezoid.dx", cumulative_trapezoid},
};

}  // namespace

std::span<const Lowering> scan_lowerings() {
  return kScanLowerings;
}

}  // namespace kiln
