// Sums, means, extrema and scans.
#include <algorithm>
#include <limits>

#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

NodeId reduced(GraphBuilder& b, Op op, NodeId x, const std::vector<int>& axes, bool keep) {
  return axes.empty() ? x : b.reduce(op, x, axes, keep);
}

// The dtype of sums: i64 for integers and bool, else the operand's.
DType sum_type(DType type) {
  return is_float(type) ? type : DType::kI64;
}

Values sum(Call& c) {
  const NodeId x = c.tensor("self");
  const std::vector<int> axes = c.axes("dim", c.b.shape(x).size());
  const DType type = c.dtype("dtype", sum_type(c.b.dtype(x)));
  if (!c.ok()) return {};
  return {reduced(c.b, Op::kReduceSum, c.b.cast(x, type), axes, c.flag("keepdim", false))};
}

// Reduced axes stay with size 1 until here.
NodeId drop_axes(GraphBuilder& b, NodeId x, const std::vector<int>& axes, bool keep) {
  if (keep || !b.ok()) return x;
  Shape shape;
  for (size_t i = 0; i < b.shape(x).size(); ++i)
    if (std::find(axes.begin(), axes.end(), static_cast<int>(i)) == axes.end())
      shape.push_back(b.shape(x)[i]);
  return b.reshape(x, shape);
}

Values mean_of(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self");
  const std::vector<int> axes = c.axes("dim", b.shape(x).size());
  const DType type = c.dtype("dtype", b.dtype(x));
  if (!c.ok()) return {};
  if (!is_float(type)) return {c.invalid("mean of a dtype that is not a float")};
  // ATen takes the mean of half types in f32 and rounds once.
  const NodeId result = mean(b, b.cast(x, compute_type(type)), axes);
  return {b.cast(drop_axes(b, result, axes, c.flag("keepdim", false)), type)};
}

// The mean of the squared distances from the mean, and the mean; in the compute type.
struct Moments {
  NodeId mean = kInvalidNode, variance = kInvalidNode;  // reduced axes of size 1
};
Moments moments(Call& c, NodeId x, const std::vector<int>& axes, double correction) {
  GraphBuilder& b = c.b;
  if (!c.ok()) return {};
  const Shape shape = b.shape(x);
  const NodeId average = mean(b, x, axes);
  const NodeId centred = b.binary(Op::kSub, x, b.broadcast(average, shape));
  const NodeId total = reduced(b, Op::kReduceSum, b.binary(Op::kMul, centred, centred), axes, true);
  NodeId count = count_value(b, x, axes, b.dtype(x));
  if (correction != 0)
    count = b.binary(Op::kMax, b.binary(Op::kSub, count, constant_like(b, count, correction)),
                     constant_like(b, count, 0));
  return {average, b.binary(Op::kDiv, total, b.broadcast(count, b.shape(total)))};
}

double correction_of(Call& c) {
  if (c.has("correction")) return c.real("correction");
  return c.flag("unbiased", true) ? 1 : 0;
}

template <bool root>
Values var_mean(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self");
  const std::vector<int> axes = c.axes("dim", b.shape(x).size());
  const double correction = correction_of(c);
  if (!c.ok()) return {};
  const DType type = b.dtype(x);
  if (!is_float(type)) return {c.invalid("variance of a dtype that is not a float")};
  const bool keep = c.flag("keepdim", false);
  const Moments m = moments(c, b.cast(x, compute_type(type)), axes, correction);
  const NodeId spread = root ? b.unary(Op::kSqrt, m.variance) : m.variance;
  return {b.cast(drop_axes(b, spread, axes, keep), type),
          b.cast(drop_axes(b, m.mean, axes, keep), type)};
}
template <bool root>
Values variance(Call& c) {
  const Values both = var_mean<root>(c);
  return both.empty() ? both : Values{both[0]};
}

Values product(Call& c) {
  const NodeId x = c.tensor("self");
  const std::vector<int> axes = c.axes("dim", c.b.shape(x).size());
  const DType type = c.dtype("dtype", sum_type(c.b.dtype(x)));
  if (!c.ok()) return {};
  // In the compute type, as sums are; bool counts as integers.
  const DType compute = type == DType::kBool ? DType::kU8 : type;
  return {c.b.cast(
      reduced(c.b, Op::kReduceProd, c.b.cast(x, compute), axes, c.flag("keepdim", false)), type)};
}

Values count_nonzero(Call& c) {
  const NodeId x = c.tensor("self");
  const std::vector<int> axes = c.axes("dim", c.b.shape(x).size());
  const NodeId ones = c.b.cast(c.b.cast(x, DType::kBool), DType::kI64);
  return {c.ok() ? reduced(c.b, Op::kReduceSum, ones, axes, false) : kInvalidNode};
}

// Sums and means of what is a number.
template <bool averages>
Values sum_skipping_nan(Call& c) {
  const Expr x = tensor(c, "self");
  const std::vector<int> axes = c.axes("dim", x.shape().size());
  const DType type = c.dtype("dtype", sum_type(x.dtype()));
  const bool keep = c.flag("keepdim", false);
  if (!c.ok()) return {};
  const Expr v = x.cast(compute_type(type)), number = v == v;
  const Expr total = choose(number, v, 0).sum(axes);
  if (!averages) return {drop_axes(c.b, total.cast(type).id, axes, keep)};
  const Expr mean = total / number.cast(v.dtype()).sum(axes);
  return {drop_axes(c.b, mean.cast(type).id, axes, keep)};
}

Values aminmax(Call& c) {
  const NodeId x = c.tensor("self");
  const std::vector<int> axes = c.has("dim") ? std::vector<int>{c.axis("dim", c.b.shape(x).size())}
                                             : c.axes("dim", c.b.shape(x).size());
  const bool keep = c.flag("keepdim", false);
  if (!c.ok() || c.b.shape(x).empty()) return {x, x};
  return {reduced(c.b, Op::kReduceMin, x, axes, keep), reduced(c.b, Op::kReduceMax, x, axes, keep)};
}

template <Op op>
Values extremum(Call& c) {
  const NodeId x = c.tensor("self");
  const std::vector<int> axes = c.axes("dim", c.b.shape(x).size());
  if (!c.ok()) return {};
  // Bool goes by way of small integers.
  const DType type = c.b.dtype(x), compute = type == DType::kBool ? DType::kU8 : type;
  return {c.b.cast(reduced(c.b, op, c.b.cast(x, compute), axes, c.flag("keepdim", false)), type)};
}

// The first place of the extremum along `axis`; a NaN counts as the extremum.
NodeId place_of(GraphBuilder& b, NodeId x, NodeId extremum, int axis, bool keep) {
  if (!b.ok()) return kInvalidNode;
  const Shape shape = b.shape(x);
  const NodeId found = b.binary(Op::kOr, b.binary(Op::kEq, x, b.broadcast(extremum, shape)),
                                b.binary(Op::kNe, x, x));
  const NodeId place = coordinate(b, shape, static_cast<size_t>(axis));
  const NodeId nowhere =
      b.broadcast(size_value(b, shape[static_cast<size_t>(axis)], DType::kI64), shape);
  return b.reduce(Op::kReduceMin, b.select(found, place, nowhere), {axis}, keep);
}

// max.dim and min.dim: values and places.
template <Op op>
Values extremum_with_place(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self");
  const int axis = c.axis("dim", b.shape(x).size());
  const bool keep = c.flag("keepdim", false);
  if (!c.ok()) return {};
  if (b.shape(x).empty()) return {x, b.constant_int(DType::kI64, 0)};
  const NodeId value = b.reduce(op, x, {axis}, true);
  return {drop_axes(b, value, {axis}, keep), place_of(b, x, value, axis, keep)};
}

template <Op op>
Values place(Call& c) {
  GraphBuilder& b = c.b;
  NodeId x = c.tensor("self");
  const bool flat = !c.has("dim"), keep = c.flag("keepdim", false);
  if (!c.ok()) return {};
  if (b.shape(x).empty()) return {b.constant_int(DType::kI64, 0)};
  const size_t rank = b.shape(x).size();
  if (b.dtype(x) == DType::kBool) x = b.cast(x, DType::kU8);
  if (flat) x = b.reshape(x, {numel(b.shape(x))});
  const int axis = flat ? 0 : c.axis("dim", rank);
  const NodeId found = place_of(b, x, b.reduce(op, x, {axis}, true), axis, keep && !flat);
  return {flat && keep ? b.reshape(found, Shape(rank, Dim(1))) : found};
}

// any and all, by way of small integers.
template <Op op>
Values truth(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self");
  const std::vector<int> axes = c.axes("dim", b.shape(x).size());
  const NodeId bits = b.cast(b.cast(x, DType::kBool), DType::kU8);
  if (!c.ok()) return {};
  return {b.cast(reduced(b, op, bits, axes, c.flag("keepdim", false)), DType::kBool)};
}

Values cumsum(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self");
  const int axis = c.axis("dim", b.shape(x).size());
  const DType type = c.dtype("dtype", sum_type(b.dtype(x)));
  if (!c.ok()) return {};
  if (b.shape(x).empty()) return {b.cast(x, type)};
  return {b.cast(b.scan_sum(b.cast(b.cast(x, type), compute_type(type)), axis), type)};
}

Values logsumexp(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self");
  const std::vector<int> axes = c.axes("dim", b.shape(x).size());
  if (!c.ok()) return {};
  const DType type = to_float_type(b.dtype(x));
  const NodeId value = b.cast(x, compute_type(type));
  const NodeId greatest = reduced(b, Op::kReduceMax, value, axes, true);
  // An infinite maximum would give inf - inf.
  const NodeId limit = constant_like(b, greatest, std::numeric_limits<double>::infinity());
  const NodeId infinite = b.binary(Op::kEq, b.unary(Op::kAbs, greatest), limit);
  const NodeId shift = b.select(infinite, constant_like(b, greatest, 0), greatest);
  const NodeId e = b.unary(Op::kExp, b.binary(Op::kSub, value, b.broadcast(shift, b.shape(value))));
  const NodeId sum = reduced(b, Op::kReduceSum, e, axes, true);
  const NodeId result = b.binary(Op::kAdd, b.unary(Op::kLog, sum), shift);
  return {b.cast(drop_axes(b, result, axes, c.flag("keepdim", false)), type)};
}

constexpr Lowering kReductionLowerings[] = {
    {"aten.sum.default", sum},
    {"aten.sum.dim_IntList", sum},
    {"aten.mean.default", mean_of},
    {"aten.mean.dim", mean_of},
    {"aten.var.correction", variance<false>},
    {"aten.var.dim", variance<false>},
    {"aten.var.default", variance<false>},
    {"aten.std.correction", variance<true>},
    {"aten.std.dim", variance<true>},
    {"aten.std.default", variance<true>},
    {"aten.var_mean.correction", var_mean<false>},
    {"aten.var_mean.dim", var_mean<false>},
    {"aten.var_mean.default", var_mean<false>},
    {"aten.std_mean.correction", var_mean<true>},
    {"aten.std_mean.dim", var_mean<true>},
    {"aten.std_mean.default", var_mean<true>},
    {"aten.prod.default", product},
    {"aten.prod.dim_int", product},
    {"aten.count_nonzero.default", count_nonzero},
    {"aten.count_nonzero.dim_IntList", count_nonzero},
    {"aten.nansum.default", sum_skipping_nan<false>},
    {"aten.nanmean.default", sum_skipping_nan<true>},
    {"aten.aminmax.default", aminmax},
    {"aten.special_logsumexp.default", logsumexp},
    {"aten.amax.default", extremum<Op::kReduceMax>},
    {"aten.amin.default", extremum<Op::kReduceMin>},
    {"aten.max.default", extremum<Op::kReduceMax>},
    {"aten.min.default", extremum<Op::kReduceMin>},
    {"aten.max.dim", extremum_with_place<Op::kReduceMax>},
    {"aten.min.dim", extremum_with_place<Op::kReduceMin>},
    {"aten.argmax.default", place<Op::kReduceMax>},
    {"aten.argmin.default", place<Op::kReduceMin>},
    {"aten.any.default", truth<Op::kReduceMax>},
    {"aten.any.dim", truth<Op::kReduceMax>},
    {"aten.any.dims", truth<Op::kReduceMax>},
    {"aten.all.default", truth<Op::kReduceMin>},
    {"aten.all.dim", truth<Op::kReduceMin>},
    {"aten.all.dims", truth<Op::kReduceMin>},
    {"aten.cumsum.default", cumsum},
    {"aten.logsumexp.default", logsumexp},
};

}  // namespace

std::span<const Lowering> reduction_lowerings() {
  return kReductionLowerings;
}

}  // namespace kiln
