// Tensors made from nothing but numbers and sizes.
#include <cmath>

#include "compiler_core/frontend/decompositions.h"

namespace kiln {
namespace {

NodeId filled(GraphBuilder& b, DType dtype, const Number& value, Shape shape) {
  return b.broadcast(scalar(b, dtype, value), std::move(shape));
}

Values full(Call& c) {
  const Number value = c.number("fill_value");
  return {filled(c.b, c.dtype("dtype", dtype_of(value)), value, c.sizes("size"))};
}
Values scalar_tensor(Call& c) {
  return {scalar(c.b, c.dtype("dtype", DType::kF32), c.number("s"))};
}

// Uninitialised memory may hold anything: zeros here.
Values empty(Call& c) {
  const DType fallback = c.has("self") ? c.b.dtype(c.tensor("self")) : DType::kF32;
  const DType type = c.dtype("dtype", fallback);
  const Shape shape = c.has("size") ? Shape(c.sizes("size")) : c.b.shape(c.tensor("self"));
  return {filled(c.b, type, to_number(int64_t{0}), shape)};
}

Values eye(Call& c) {
  GraphBuilder& b = c.b;
  const Dim rows = c.size("n"), columns = c.size("m", rows);
  const DType type = c.dtype("dtype", DType::kF32);
  if (!c.ok()) return {};
  const Shape shape = {rows, columns};
  return {b.cast(b.binary(Op::kEq, coordinate(b, shape, 0), coordinate(b, shape, 1)), type)};
}

// From both ends towards the middle, as ATen, so that the ends are exact; powers of `base` for
// logspace.
Values even_steps(Call& c, std::optional<double> base) {
  GraphBuilder& b = c.b;
  const double start = c.real("start"), end = c.real("end");
  const int64_t steps = c.integer("steps");
  const DType type = c.dtype("dtype", DType::kF32);
  if (!c.ok() || steps < 0) return {c.invalid("linspace of a negative number of steps")};
  const double step = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0;
  const DType compute = is_float(type) ? compute_type(type) : DType::kF64;
  const NodeId i = b.cast(b.iota(DType::kI64, steps), compute);
  const auto line = [&](double from, double by, NodeId at) {
    return b.binary(Op::kAdd, constant_like(b, at, from),
                    b.binary(Op::kMul, at, constant_like(b, at, by)));
  };
  const NodeId left = line(start, step, i);
  const NodeId back = b.binary(Op::kSub, constant_like(b, i, static_cast<double>(steps - 1)), i);
  const NodeId right = line(end, -step, back);
  const int64_t half = steps / 2;
  const NodeId first = b.binary(Op::kLt, i, constant_like(b, i, static_cast<double>(half)));
  NodeId result = steps == 1 ? left : b.select(first, left, right);
  if (base) result = b.binary(Op::kPow, constant_like(b, result, *base), result);
  return {b.cast(result, type)};
}
Values linspace(Call& c) {
  return even_steps(c, std::nullopt);
}
Values logspace(Call& c) {
  return even_steps(c, c.real("base", 10));
}

// zeros, ones.
template <int value>
Values filled_size(Call& c) {
  return {filled(c.b, c.dtype("dtype", DType::kF32), to_number(int64_t{value}), c.sizes("size"))};
}
// new_zeros, new_ones.
template <int value>
Values filled_new(Call& c) {
  const DType type = c.dtype("dtype", c.b.dtype(c.tensor("self")));
  return {filled(c.b, type, to_number(int64_t{value}), c.sizes("size"))};
}
// zeros_like, ones_like.
template <int value>
Values filled_like(Call& c) {
  const NodeId x = c.tensor("self");
  return {filled(c.b, c.dtype("dtype", c.b.dtype(x)), to_number(int64_t{value}), c.b.shape(x))};
}
Values full_like(Call& c) {
  const NodeId x = c.tensor("self");
  return {filled(c.b, c.dtype("dtype", c.b.dtype(x)), c.number("fill_value"), c.b.shape(x))};
}
Values new_full(Call& c) {
  const DType type = c.dtype("dtype", c.b.dtype(c.tensor("self")));
  return {filled(c.b, type, c.number("fill_value"), c.sizes("size"))};
}

NodeId integer_range(Call& c, const Dim& start, const Dim& end, int64_t step, DType type) {
  GraphBuilder& b = c.b;
  Dim count = end - start;
  if (step != 1) {
    if (step == 0 || !count.is_constant())
      return c.unsupported("a symbolic range with a step is not covered");
    const int64_t span = count.constant();
    if (!count.is_valid() || span == INT64_MIN) return c.invalid("the range overflows");
    // Rounded up, without overflow.
    const int64_t whole = span / step;
    count = whole + (span % step != 0 && (span < 0) == (step < 0) ? 1 : 0);
  }
  if (count.is_constant() && count.constant() < 0)
    return c.invalid("the range's bounds do not agree with its step");
  NodeId x = b.iota(DType::kI64, count);
  const Shape shape = {count};
  if (step != 1) x = b.binary(Op::kMul, x, b.broadcast(b.constant_int(DType::kI64, step), shape));
  if (!start.is(0))
    x = b.binary(Op::kAdd, x, b.broadcast(size_value(b, start, DType::kI64), shape));
  return b.cast(x, type);
}

// As ATen: computed in f64, each element start + i * step.
NodeId float_range(Call& c, double start, double end, double step, DType type) {
  GraphBuilder& b = c.b;
  const double count = std::ceil((end - start) / step);
  if (!(count >= 0 && count < 9e15))
    return c.invalid("the range's bounds do not agree with its step");
  const Shape shape = {static_cast<int64_t>(count)};
  const NodeId i = b.cast(b.iota(DType::kI64, shape[0]), DType::kF64);
  const NodeId scaled = b.binary(Op::kMul, i, constant_like(b, i, step));
  return b.cast(b.binary(Op::kAdd, scaled, constant_like(b, i, start)), type);
}

Values arange(Call& c) {
  const Number zero = to_number(int64_t{0}), one = to_number(int64_t{1});
  const Number start = c.has("start") ? c.number("start") : zero;
  const Number step = c.has("step") ? c.number("step") : one;
  const Number end = c.number("end");
  if (!c.ok()) return {};
  const auto is_real = [](const Number& n) { return n.kind == Number::Kind::kFloat; };
  const bool real = is_real(start) || is_real(end) || is_real(step);
  const DType type = c.dtype("dtype", real ? DType::kF32 : DType::kI64);
  if (!real && step.integer.is_constant())
    return {integer_range(c, start.integer, end.integer, step.integer.constant(), type)};
  for (const Number* n : {&start, &end, &step})
    if (!n->integer.is_constant()) return {c.unsupported("a symbolic float range is not covered")};
  return {float_range(c, start.value, end.value, step.value, type)};
}

constexpr Lowering kCreationLowerings[] = {
    {"aten.arange.default", arange},
    {"aten.arange.start", arange},
    {"aten.arange.start_step", arange},
    {"aten.full.default", full},
    {"aten.full_like.default", full_like},
    {"aten.new_full.default", new_full},
    {"aten.zeros.default", filled_size<0>},
    {"aten.ones.default", filled_size<1>},
    {"aten.zeros_like.default", filled_like<0>},
    {"aten.ones_like.default", filled_like<1>},
    {"aten.new_zeros.default", filled_new<0>},
    {"aten.new_ones.default", filled_new<1>},
    {"aten.scalar_tensor.default", scalar_tensor},
    {"aten.empty.memory_format", empty},
    {"aten.empty_like.default", empty},
    {"aten.new_empty.default", empty},
    {"aten.empty_strided.default", empty},
    {"aten.new_empty_strided.default", empty},
    {"aten.empty_permuted.default", empty},
    {"aten.eye.default", eye},
    {"aten.eye.m", eye},
    {"aten.linspace.default", linspace},
    {"aten.logspace.default", logspace},
};

}  // namespace

std::span<const Lowering> creation_lowerings() {
  return kCreationLowerings;
}

}  // namespace kiln
