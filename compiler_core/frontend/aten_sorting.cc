// Sorting: sort, top-k, medians, and searches in sorted sequences. NaN is the greatest.
#include <algorithm>

#include "compiler_core/frontend/decompositions.h"
#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

// The positions of x's elements in order along an axis.
NodeId order_along(GraphBuilder& b, NodeId x, int axis, bool descending) {
  if (!b.ok() || b.shape(x).empty()) return b.broadcast(b.constant_int(DType::kI64, 0), {});
  if (b.dtype(x) == DType::kBool) x = b.cast(x, DType::kU8);
  const int last = static_cast<int>(b.shape(x).size()) - 1;
  const NodeId order = b.argsort(swap_axes(b, x, axis, last), descending);
  return swap_axes(b, order, axis, last);
}

NodeId in_order(GraphBuilder& b, NodeId x, int axis, NodeId order) {
  return b.shape(x).empty() ? x : gather_along(b, x, axis, order);
}

Values sort(Call& c) {
  const NodeId x = c.tensor("self");
  const int axis = c.axis("dim", c.b.shape(x).size(), -1);
  const NodeId order = order_along(c.b, x, axis, c.flag("descending", false));
  return {in_order(c.b, x, axis, order), order};
}
Values argsort(Call& c) {
  const NodeId x = c.tensor("self");
  const int axis = c.axis("dim", c.b.shape(x).size(), -1);
  return {order_along(c.b, x, axis, c.flag("descending", false))};
}
Values msort(Call& c) {
  const NodeId x = c.tensor("self");
  return {in_order(c.b, x, 0, order_along(c.b, x, 0, false))};
}

Values topk(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self");
  const int axis = c.axis("dim", b.shape(x).size(), -1);
  const Dim k = c.size("k");
  NodeId order = order_along(b, x, axis, c.flag("largest", true));
  if (!c.ok()) return {};
  if (!b.shape(x).empty()) order = b.slice(order, axis, 0, k);
  return {in_order(b, x, axis, order), order};
}

// The element at place `k` of the ascending order, and where it stood.
Values pick(Call& c, NodeId x, int axis, const Dim& k, bool keep) {
  GraphBuilder& b = c.b;
  if (b.shape(x).empty()) return {x, b.constant_int(DType::kI64, 0)};
  NodeId order = b.slice(order_along(b, x, axis, false), axis, k, 1);
  NodeId value = gather_along(b, x, axis, order);
  Shape shape = b.shape(order);
  if (!c.ok()) return {};
  if (!keep) shape.erase(shape.begin() + axis);
  return {b.reshape(value, shape), b.reshape(order, shape)};
}

Values kthvalue(Call& c) {
  const NodeId x = c.tensor("self");
  const int axis = c.axis("dim", c.b.shape(x).size(), -1);
  return c.ok() ? pick(c, x, axis, c.size("k") - Dim(1), c.flag("keepdim", false)) : Values();
}

// Between the two places that the fraction `q` of the order falls on; NaN when there is any.
Values quantile(Call& c) {
  GraphBuilder& b = c.b;
  Expr x = tensor(c, "self");
  const double q = c.real("q");
  const bool flat = !c.has("dim"), keep = c.flag("keepdim", false);
  const std::string_view how = c.text("interpolation", "linear");
  if (!c.ok() || !(q >= 0 && q <= 1)) return {c.invalid("a quantile lies between 0 and 1")};
  const size_t rank = x.shape().size();
  if (flat) x = x.reshape({numel(x.shape())});
  const int axis = flat ? 0 : c.axis("dim", rank);
  if (!c.ok() || x.shape().empty() || !x.shape()[at(axis)].is_constant() ||
      x.shape()[at(axis)].is(0) || how != "linear")
    return {
        c.unsupported("a quantile of a symbolic or empty size, or of another interpolation "
                      "than linear, is not covered")};
  const int64_t last = x.shape()[at(axis)].constant() - 1;
  const double rank_of = q * static_cast<double>(last);
  const auto low = static_cast<int64_t>(rank_of);
  const NodeId order = order_along(b, x.id, axis, false);
  const auto element = [&](int64_t i) {
    return Expr{&b, gather_along(b, x.id, axis, b.slice(order, axis, i, 1))};
  };
  const Expr below = element(low), above = element(std::min(low + 1, last)), top = element(last);
  const Expr between = below + (above - below) * (rank_of - static_cast<double>(low));
  const Expr value = choose(top != top, top, between);
  Shape shape = value.shape();
  if (flat && keep) shape = Shape(rank, Dim(1));
  if (!keep) shape.erase(shape.begin() + axis);
  return {value.reshape(shape).id};
}

// The lower of the two in the middle; NaN when there is any.
Values median(Call& c) {
  GraphBuilder& b = c.b;
  NodeId x = c.tensor("self");
  const bool flat = !c.has("dim"), keep = c.flag("keepdim", false);
  if (!c.ok()) return {};
  if (flat) x = b.reshape(x, {numel(b.shape(x))});
  const int axis = flat ? 0 : c.axis("dim", b.shape(x).size());
  if (!c.ok() || b.shape(x).empty()) return {x, b.constant_int(DType::kI64, 0)};
  const Dim size = b.shape(x)[at(axis)];
  if (!size.is_constant() || size.constant() < 1)
    return {c.unsupported("the median over a symbolic or empty axis is not covered")};
  Values middle = pick(c, x, axis, (size.constant() - 1) / 2, keep);
  if (!c.ok() || !is_float(b.dtype(x))) return middle;
  // NaNs come last: one of them says all.
  const Values last = pick(c, x, axis, size.constant() - 1, keep);
  if (!c.ok()) return {};
  const Expr greatest{&b, last[0]};
  const Expr any = greatest != greatest;
  middle[0] = choose(any, greatest, {&b, middle[0]}).id;
  middle[1] = choose(any, {&b, last[1]}, {&b, middle[1]}).id;
  return middle;
}

// How many of the sorted sequence, along its last axis, stand before each value: a comparison with
// all of them.
NodeId places_in(GraphBuilder& b, NodeId sequence, NodeId values, bool right, DType type) {
  const Shape shape = b.shape(values);
  const DType compare = promote_types(b.dtype(sequence), b.dtype(values));
  Shape column = shape, line = b.shape(sequence);
  column.emplace_back(1);
  if (line.size() > 1) line.insert(line.end() - 1, 1);
  const Expr v = Expr{&b, b.cast(values, compare)}.reshape(column);
  const Expr s = Expr{&b, b.cast(sequence, compare)}.reshape(line);
  // Not "less": so that a NaN goes behind everything.
  const Expr before = right ? !(s > v) : !(s >= v);
  const int last = static_cast<int>(shape.size());
  return before.cast(type).sum({last}, false).id;
}

Values searchsorted(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId sequence = c.tensor("sorted_sequence");
  const Operand given = c.operand("self");
  if (c.has("sorter")) return {c.unsupported("searchsorted with a sorter is not covered")};
  const std::string_view side = c.text("side", "");
  const bool right = c.flag("right", false) || side == "right";
  const DType type = c.flag("out_int32", false) ? DType::kI32 : DType::kI64;
  if (!c.ok() || b.shape(sequence).empty()) return {c.invalid("searchsorted needs a sequence")};
  const NodeId values = given.number ? scalar(b, b.dtype(sequence), *given.number) : given.id;
  return {places_in(b, sequence, values, right, type)};
}
Values bucketize(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId boundaries = c.tensor("boundaries");
  const Operand given = c.operand("self");
  const bool right = c.flag("right", false);
  const DType type = c.flag("out_int32", false) ? DType::kI32 : DType::kI64;
  if (!c.ok() || b.shape(boundaries).size() != 1) return {c.invalid("bucketize needs a vector")};
  const NodeId values = given.number ? scalar(b, b.dtype(boundaries), *given.number) : given.id;
  return {places_in(b, boundaries, values, right, type)};
}

// Whether each element is among the others.
Values isin(Call& c) {
  GraphBuilder& b = c.b;
  const Operand given = c.operand(c.has("elements") ? "elements" : "element");
  const Operand tests = c.operand(c.has("test_elements") ? "test_elements" : "test_element");
  if (!c.ok()) return {};
  const Operand both[] = {given, tests};
  const DType type = result_type(b, both);
  const Shape shape = given.number ? Shape() : b.shape(given.id);
  Shape column = shape;
  column.emplace_back(1);
  const Dim count = tests.number ? Dim(1) : numel(b.shape(tests.id));
  const Expr x = Expr{&b, materialise(b, given, type, shape)}.reshape(column);
  const Expr y =
      Expr{&b, materialise(b, tests, type, tests.number ? Shape() : b.shape(tests.id))}.reshape(
          {count});
  const Expr hits = (x == y).cast(DType::kI32).sum({static_cast<int>(shape.size())}, false);
  return {(c.flag("invert", false) ? hits == 0 : hits != 0).id};
}

constexpr Lowering kSortingLowerings[] = {
    {"aten.sort.default", sort},
    {"aten.sort.stable", sort},
    {"aten.argsort.default", argsort},
    {"aten.argsort.stable", argsort},
    {"aten.msort.default", msort},
    {"aten.topk.default", topk},
    {"aten.quantile.scalar", quantile},
    {"aten.kthvalue.default", kthvalue},
    {"aten.median.default", median},
    {"aten.median.dim", median},
    {"aten.searchsorted.Tensor", searchsorted},
    {"aten.searchsorted.Scalar", searchsorted},
    {"aten.bucketize.Tensor", bucketize},
    {"aten.bucketize.Scalar", bucketize},
    {"aten.isin.Tensor_Tensor", isin},
    {"aten.isin.Tensor_Scalar", isin},
    {"aten.isin.Scalar_Tensor", isin},
};

}  // namespace

std::span<const Lowering> sorting_lowerings() {
  return kSortingLowerings;
}

}  // namespace kiln
