// Pooling to a given number of windows, which need not be of one size.
#include <algorithm>
#include <optional>

#include "compiler_core/frontend/windows.h"

namespace kiln {
namespace {

// Along one axis, `out` windows that begin at floor(i * in / out) and end at ceil((i + 1) * in /
// out), each reduced.
NodeId adapt(Call& c, NodeId x, size_t axis, const Dim& out, Op op) {
  GraphBuilder& b = c.b;
  constexpr int64_t kMostSlices = 256;
  const Shape shape = b.shape(x);
  const Dim& in = shape[axis];
  if (in == out) return x;
  const int at = static_cast<int>(axis);
  if (out.is(1)) return b.reduce(op, x, {at}, true);
  if (!in.is_constant() || !out.is_constant() || out.constant() < 1)
    return c.unsupported("adaptive pooling of a dynamic size is not covered");
  if (out.constant() > kMostSlices)
    return c.unsupported("adaptive pooling to more than 256 uneven windows is not covered");
  std::vector<NodeId> parts;
  for (int64_t i = 0; i < out.constant(); ++i) {
    const int64_t begin = i * in.constant() / out.constant();
    const int64_t end = ((i + 1) * in.constant() + out.constant() - 1) / out.constant();
    parts.push_back(b.reduce(op, b.slice(x, at, begin, end - begin), {at}, true));
  }
  return b.concat(parts, at);
}

// How many elements the windows of adapt() hold, in `type` [out].
NodeId adapted_counts(GraphBuilder& b, const Dim& in, const Dim& out, DType type) {
  const Shape shape = {out};
  const auto number = [&](const Dim& value) {
    return b.broadcast(size_value(b, value, DType::kI64), shape);
  };
  const auto scaled = [&](const Dim& more) {
    return b.binary(Op::kAdd, b.binary(Op::kMul, b.iota(DType::kI64, out), number(in)),
                    number(more));
  };
  const NodeId begin = b.binary(Op::kDiv, scaled(0), number(out));
  const NodeId end = b.binary(Op::kDiv, scaled(in + out - Dim(1)), number(out));
  return b.cast(b.binary(Op::kSub, end, begin), type);
}

std::vector<Dim> output_sizes(Call& c, const Shape& shape, size_t axes) {
  std::vector<Dim> sizes = c.sizes("output_size");
  if (c.ok() && sizes.size() == 1) sizes.resize(axes, sizes[0]);
  if (c.ok() && (sizes.size() != axes || shape.size() <= axes))
    c.invalid("output_size does not fit");
  return sizes;
}

// The windows, where they are all of one size, as those of an ordinary pooling.
std::optional<Windows> even_windows(const Shape& shape, const std::vector<Dim>& out) {
  const size_t axes = out.size();
  Windows w{{}, {}, std::vector<int64_t>(axes, 1), std::vector<int64_t>(axes, 0), {}, out};
  for (size_t i = 0; i < axes; ++i) {
    const Dim& in = shape[shape.size() - axes + i];
    w.in.push_back(in);
    if (!in.is_constant() || !out[i].is_constant() || out[i].constant() < 1 ||
        in.constant() < out[i].constant() || in.constant() % out[i].constant() != 0)
      return std::nullopt;
    w.size.push_back(in.constant() / out[i].constant());
  }
  w.stride = w.size;
  return w;
}

template <size_t axes>
Values adaptive_avg_pool(Call& c) {
  GraphBuilder& b = c.b;
  NodeId x = c.tensor("self");
  if (!c.ok()) return {};
  if (!is_float(b.dtype(x))) return {c.unsupported("adaptive_avg_pool of integers is not covered")};
  const DType type = b.dtype(x), wide = compute_type(type);
  const Shape shape = b.shape(x);
  const std::vector<Dim> out = output_sizes(c, shape, axes);
  if (!c.ok()) return {};
  const size_t lead = shape.size() - axes;
  x = b.cast(x, wide);
  if (std::all_of(out.begin(), out.end(), [](const Dim& size) { return size.is(1); })) {
    std::vector<int> all;
    for (size_t i = lead; i < shape.size(); ++i) all.push_back(static_cast<int>(i));
    return {b.cast(mean(b, x, all), type)};
  }
  if (const std::optional<Windows> even = even_windows(shape, out)) {
    const NodeId sums = reduce_windows(b, Op::kReduceSum, x, *even, constant_bits(wide, 0));
    int64_t count = 1;
    for (const int64_t size : even->size) count *= size;
    if (!c.ok()) return {};
    const NodeId divisor = b.broadcast(b.constant(wide, static_cast<double>(count)), b.shape(sums));
    return {b.cast(b.binary(Op::kDiv, sums, divisor), type)};
  }
  for (size_t i = axes; i-- > 0 && c.ok();) {
    x = adapt(c, x, lead + i, out[i], Op::kReduceSum);
    if (!c.ok() || out[i] == shape[lead + i]) continue;
    const int axis = static_cast<int>(lead + i);
    const NodeId count = b.broadcast_in(adapted_counts(b, shape[lead + i], out[i], wide),
                                        b.shape(x), std::span(&axis, 1));
    x = b.binary(Op::kDiv, x, count);
  }
  return {b.cast(x, type)};
}

template <size_t axes>
Values adaptive_max_pool(Call& c) {
  GraphBuilder& b = c.b;
  NodeId x = c.tensor("self");
  if (!c.ok()) return {};
  if (!is_float(b.dtype(x))) return {c.unsupported("adaptive_max_pool of integers is not covered")};
  const Shape shape = b.shape(x);
  const std::vector<Dim> out = output_sizes(c, shape, axes);
  if (!c.ok()) return {};
  if (const std::optional<Windows> w = even_windows(shape, out)) {
    const NodeId windows = windows_of(b, x, *w, least(b.dtype(x)));
    const NodeId maxima = max_of_windows(b, windows, *w);
    return {maxima, places_of_maxima(b, windows, maxima, *w)};
  }
  for (size_t i = axes; i-- > 0 && c.ok();)
    x = adapt(c, x, shape.size() - axes + i, out[i], Op::kReduceMax);
  return {x, kInvalidNode};
}

constexpr Lowering kAdaptivePoolingLowerings[] = {
    {"aten.adaptive_avg_pool1d.default", adaptive_avg_pool<1>},
    {"aten.adaptive_avg_pool2d.default", adaptive_avg_pool<2>},
    {"aten.adaptive_avg_pool3d.default", adaptive_avg_pool<3>},
    {"aten._adaptive_avg_pool2d.default", adaptive_avg_pool<2>},
    {"aten._adaptive_avg_pool3d.default", adaptive_avg_pool<3>},
    {"aten.adaptive_max_pool1d.default", adaptive_max_pool<1>},
    {"aten.adaptive_max_pool2d.default", adaptive_max_pool<2>},
    {"aten.adaptive_max_pool3d.default", adaptive_max_pool<3>},
};

}  // namespace

std::span<const Lowering> adaptive_pooling_lowerings() {
  return kAdaptivePoolingLowerings;
}

}  // namespace kiln
