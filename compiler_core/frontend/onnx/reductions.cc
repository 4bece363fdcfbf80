// Reductions, cumulative sums, and what picks by rank.
#include <cmath>

#include "compiler_core/frontend/onnx/call.h"

namespace kiln {
namespace {

// Which axes, and whether they stay. Axes are an attribute in old opsets and an operand since 13
// (ReduceSum) or 18 (the others).
struct Reduction {
  Expr x;
  std::vector<int> axes;
  bool keep = true;
  bool none = false;  // nothing is reduced
};
Reduction read_reduction(OnnxCall& c) {
  Reduction r{c.tensor(0), {}, c.flag("keepdims", true), false};
  if (!c.ok()) return r;
  const size_t rank = r.x.shape().size();
  std::vector<int64_t> given = c.list("axes").value_or(std::vector<int64_t>());
  if (c.has(1)) given = c.integers(1, "list of axes");
  r.axes = c.axes(given, rank);
  r.none = given.empty() && c.flag("noop_with_empty_axes", false);
  if (given.empty() && !r.none)
    for (size_t i = 0; i < rank; ++i) r.axes.push_back(static_cast<int>(i));
  return r;
}

// `f` of the operand in its compute type, over the axes.
template <class F>
Values reduced(OnnxCall& c, F f) {
  const Reduction r = read_reduction(c);
  if (!c.ok()) return {};
  const DType type = r.x.dtype();
  return {f(r.x.cast(compute_type(type)), r).cast(type).id};
}
Expr total(Expr x, const Reduction& r) {
  return r.axes.empty() ? x : x.sum(r.axes, r.keep);
}
Expr extreme(OnnxCall& c, Op op, Expr x, const Reduction& r) {
  return r.axes.empty() ? x : Expr{&c.b, c.b.reduce(op, x.id, r.axes, r.keep)};
}

Values sum(OnnxCall& c) {
  return reduced(c, [&](Expr x, const Reduction& r) { return total(x, r); });
}
Values mean_of(OnnxCall& c) {
  return reduced(c, [&](Expr x, const Reduction& r) {
    const Expr sums = total(x, r);
    return sums / Expr{&c.b, count_value(c.b, x.id, r.axes, x.dtype())}.broadcast(sums.shape());
  });
}
Values greatest(OnnxCall& c) {
  const Reduction r = read_reduction(c);
  if (!c.ok()) return {};
  // Over bool it is "any"; there is no maximum of bool.
  if (r.x.dtype() == DType::kBool)
    return {extreme(c, Op::kReduceMax, r.x.cast(DType::kU8), r).cast(DType::kBool).id};
  return {extreme(c, Op::kReduceMax, r.x, r).id};
}
Values least(OnnxCall& c) {
  const Reduction r = read_reduction(c);
  if (!c.ok()) return {};
  if (r.x.dtype() == DType::kBool)
    return {extreme(c, Op::kReduceMin, r.x.cast(DType::kU8), r).cast(DType::kBool).id};
  return {extreme(c, Op::kReduceMin, r.x, r).id};
}
Values product(OnnxCall& c) {
  return reduced(c, [&](Expr x, const Reduction& r) { return extreme(c, Op::kReduceProd, x, r); });
}
Values sum_of_magnitudes(OnnxCall& c) {
  return reduced(c, [&](Expr x, const Reduction& r) { return total(abs(x), r); });
}
Values sum_of_squares(OnnxCall& c) {
  return reduced(c, [&](Expr x, const Reduction& r) { return total(x * x, r); });
}
Values euclidean(OnnxCall& c) {
  return reduced(c, [&](Expr x, const Reduction& r) { return sqrt(wide(total(x * x, r))); });
}
Values log_of_sum(OnnxCall& c) {
  return reduced(c, [&](Expr x, const Reduction& r) { return log(wide(total(x, r))); });
}
Values log_of_sum_of_exponentials(OnnxCall& c) {
  return reduced(c, [&](Expr given, const Reduction& r) {
    const Expr x = wide(given);
    if (r.axes.empty()) return x;
    return c.aten("aten.logsumexp.default",
                  {{"self", x},
                   {"dim", std::vector<int64_t>(r.axes.begin(), r.axes.end())},
                   {"keepdim", r.keep}});
  });
}

// The first of several, unless select_last_index says the last.
Values place_of(OnnxCall& c, std::string_view target) {
  Expr x = c.tensor(0);
  if (!c.ok()) return {};
  const Shape shape = x.shape();
  const int axis = c.axis(c.integer("axis", 0), shape.size());
  if (!c.ok()) return {};
  const bool last = c.flag("select_last_index", false);
  const Dim& size = shape[static_cast<size_t>(axis)];
  if (last) x = {&c.b, c.b.slice(x.id, axis, size - Dim(1), size, -1)};
  const Expr place =
      c.aten(target, {{"self", x}, {"dim", axis}, {"keepdim", c.flag("keepdims", true)}});
  if (!last || !c.ok()) return {place.id};
  const Expr end = {&c.b, size_value(c.b, size - Dim(1), DType::kI64)};
  return {(end.broadcast(place.shape()) - place).id};
}
Values place_of_greatest(OnnxCall& c) {
  return place_of(c, "aten.argmax.default");
}
Values place_of_least(OnnxCall& c) {
  return place_of(c, "aten.argmin.default");
}

Values cumulative_sum(OnnxCall& c) {
  const Expr x = c.tensor(0);
  const std::vector<int64_t> given = c.integers(1, "axis");
  if (!c.ok()) return {};
  const Shape shape = x.shape();
  if (given.size() != 1) return {c.invalid("needs one axis")};
  const int axis = c.axis(given[0], shape.size());
  if (!c.ok()) return {};
  const Dim& size = shape[static_cast<size_t>(axis)];
  const auto turned = [&](Expr y) {
    if (!c.flag("reverse", false)) return y;
    return Expr{&c.b, c.b.slice(y.id, axis, size - Dim(1), size, -1)};
  };
  const Expr source = turned(x.cast(compute_type(x.dtype())));
  Expr sums = {&c.b, c.b.scan_sum(source.id, axis)};
  if (c.flag("exclusive", false)) sums = sums - source;
  return {turned(sums).cast(x.dtype()).id};
}

Values top_k(OnnxCall& c) {
  const Expr x = c.tensor(0);
  const std::vector<Dim> k = c.sizes(1, "number k");
  if (!c.ok()) return {};
  if (k.size() != 1) return {c.invalid("needs one number k")};
  const int axis = c.axis(c.integer("axis", -1), x.shape().size());
  return c.aten_values("aten.topk.default", {{"self", x},
                                             {"k", k[0]},
                                             {"dim", axis},
                                             {"largest", c.flag("largest", true)},
                                             {"sorted", true}});
}

constexpr OnnxLowering kOnnxReductionLowerings[] = {
    {"ReduceSum", sum},
    {"ReduceMean", mean_of},
    {"ReduceMax", greatest},
    {"ReduceMin", least},
    {"ReduceProd", product},
    {"ReduceL1", sum_of_magnitudes},
    {"ReduceL2", euclidean},
    {"ReduceSumSquare", sum_of_squares},
    {"ReduceLogSum", log_of_sum},
    {"ReduceLogSumExp", log_of_sum_of_exponentials},
    {"ArgMax", place_of_greatest},
    {"ArgMin", place_of_least},
    {"CumSum", cumulative_sum},
    {"TopK", top_k},
};

}  // namespace

std::span<const OnnxLowering> onnx_reduction_lowerings() {
  return kOnnxReductionLowerings;
}

}  // namespace kiln
