// Pooling over windows, and over all that is there. Where pads are symmetric it is ATen's.
#include "compiler_core/frontend/onnx/spatial.h"
#include "compiler_core/frontend/windows.h"
#include "compiler_core/ir/verify.h"

namespace kiln {
namespace {

struct Pool {
  Expr x;
  Windows windows;  // `padding` is what lies before; `out` says how far they reach behind
};

// With ceil_mode a last window may reach beyond the padded operand, as long as it begins within the
// operand or the padding before it.
Pool read_pool(OnnxCall& c) {
  Pool pool{c.tensor(0), {}};
  if (!c.ok()) return pool;
  const Shape spatial = spatial_sizes(c, pool.x.shape());
  if (!c.list("kernel_shape")) c.invalid("attribute 'kernel_shape' is missing");
  if (!c.ok()) return pool;
  const SpatialWindows s = read_spatial(c, spatial, *c.list("kernel_shape"));
  pool.windows = {s.size, s.stride, s.dilation, s.low, spatial, {}};
  const bool ceil_mode = c.flag("ceil_mode", false);
  for (size_t i = 0; i < s.axes() && c.ok(); ++i) {
    const Dim room = spatial[i] + Dim(s.low[i] + s.high[i] - s.dilation[i] * (s.size[i] - 1) - 1);
    const auto count = count_windows(room + Dim(ceil_mode ? s.stride[i] - 1 : 0), s.stride[i]);
    if (!count) {
      c.unsupported(
          "pooling with a stride over a dynamic size that it does not divide is not "
          "covered; export the size as a constant");
      return pool;
    }
    Dim out = *count;
    const Dim beyond = (out - Dim(1)) * Dim(s.stride[i]) - spatial[i] - Dim(s.low[i]);
    if (ceil_mode && beyond.is_constant() && beyond.constant() >= 0) out = out - Dim(1);
    if (out.is_constant() && out.constant() < 1) c.invalid("a window is larger than the operand");
    pool.windows.out.push_back(out);
  }
  return pool;
}

// Places are numbered through the whole tensor, not plane by plane as ATen has them.
Expr places_in_all(OnnxCall& c, const Pool& pool, NodeId windows, NodeId maxima) {
  GraphBuilder& b = c.b;
  const Expr places = {&b, places_of_maxima(b, windows, maxima, pool.windows)};
  if (!c.ok()) return places;
  const Shape shape = pool.x.shape(), out = places.shape();
  const Dim plane = numel(pool.windows.in);
  const Shape planes = {shape[0] * shape[1]};
  const Expr number = {&b, b.iota(DType::kI64, planes[0])};
  const Expr offset = number * Expr{&b, size_value(b, plane, DType::kI64)}.broadcast(planes);
  Shape rows(out.size(), 1);
  rows[0] = shape[0];
  rows[1] = shape[1];
  return places + offset.reshape(rows).broadcast(out);
}

Values max_pool(OnnxCall& c) {
  const Pool pool = read_pool(c);
  if (!c.ok()) return {};
  GraphBuilder& b = c.b;
  const ConstantAttr outside = least(pool.x.dtype());
  if (!c.wants_output(1))
    return {reduce_windows(b, Op::kReduceMax, pool.x.id, pool.windows, outside)};
  if (c.flag("storage_order", false))
    return {c.unsupported("indices in column-major order are not covered")};
  const NodeId windows = windows_of(b, pool.x.id, pool.windows, outside);
  const NodeId maxima = max_of_windows(b, windows, pool.windows);
  return {maxima, places_in_all(c, pool, windows, maxima).id};
}

// How many elements of the operand each window has along axis i.
Expr counts_along(OnnxCall& c, const Pool& pool, size_t i) {
  GraphBuilder& b = c.b;
  const Windows& w = pool.windows;
  const Shape line = {w.out[i]};
  const auto value = [&](const Dim& size) {
    return Expr{&b, size_value(b, size, DType::kI64)}.broadcast(line);
  };
  const Expr begin =
      Expr{&b, b.iota(DType::kI64, w.out[i])} * value(w.stride[i]) - value(w.padding[i]);
  // One element of the window after the other, since they may be apart.
  Expr count = value(0);
  for (int64_t k = 0; k < w.size[i] && c.ok(); ++k) {
    const Expr at = begin + value(k * w.dilation[i]);
    count = count + ((at >= value(0)) & (at < value(w.in[i]))).cast(DType::kI64);
  }
  return count;
}

Values average_pool(OnnxCall& c) {
  const Pool pool = read_pool(c);
  if (!c.ok()) return {};
  GraphBuilder& b = c.b;
  const Windows& w = pool.windows;
  const DType type = pool.x.dtype(), wide = compute_type(type);
  const bool with_pads = c.flag("count_include_pad", false);
  const Expr sums = {
      &b, reduce_windows(b, Op::kReduceSum, pool.x.cast(wide).id, w, constant_bits(wide, 0))};
  if (!c.ok()) return {};
  int64_t window = 1;
  // With pads every window counts as full, also one that reaches behind them.
  bool uniform = true;
  for (size_t i = 0; i < w.axes(); ++i) {
    window *= w.size[i];
    const Dim behind = w.behind(i);
    uniform = with_pads ||
              (uniform && behind.is_constant() && behind.constant() <= 0 && w.padding[i] == 0);
    if (!uniform && w.size[i] > 64)
      return {
          c.unsupported("an average over more than 64 elements of an axis with pads is not "
                        "covered; pad before, with count_include_pad")};
  }
  if (uniform) return {(sums / static_cast<double>(window)).cast(type).id};
  Expr divisor = sums.like(1);
  for (size_t i = 0; i < w.axes(); ++i) {
    const int axis = static_cast<int>(2 + i);
    const Expr along = counts_along(c, pool, i).cast(wide);
    divisor = divisor * Expr{&b, b.broadcast_in(along.id, sums.shape(), std::span(&axis, 1))};
  }
  return {(sums / divisor).cast(type).id};
}

Values lp_pool(OnnxCall& c) {
  Pool pool = read_pool(c);
  const int64_t p = c.integer("p", 2);
  if (!c.ok()) return {};
  if (p != 1 && p != 2) return {c.unsupported("a norm of p other than 1 and 2 is not covered")};
  const Expr x = wide(pool.x);
  const Expr sums = {&c.b, reduce_windows(c.b, Op::kReduceSum, (p == 1 ? abs(x) : x * x).id,
                                          pool.windows, constant_bits(x.dtype(), 0))};
  return {(p == 1 ? sums : sqrt(sums)).cast(pool.x.dtype()).id};
}

std::vector<int> all_spatial(OnnxCall& c, Expr x) {
  std::vector<int> axes;
  if (x.shape().size() < 3) c.invalid("needs a tensor with spatial axes");
  for (size_t i = 2; i < x.shape().size(); ++i) axes.push_back(static_cast<int>(i));
  return axes;
}
Values global_average_pool(OnnxCall& c) {
  const Expr x = c.tensor(0);
  if (!c.ok()) return {};
  const std::vector<int> axes = all_spatial(c, x);
  if (!c.ok()) return {};
  return {Expr{&c.b, mean(c.b, wide(x).id, axes)}.cast(x.dtype()).id};
}
Values global_max_pool(OnnxCall& c) {
  const Expr x = c.tensor(0);
  if (!c.ok()) return {};
  const std::vector<int> axes = all_spatial(c, x);
  if (!c.ok()) return {};
  return {c.b.reduce(Op::kReduceMax, x.id, axes, true)};
}

constexpr OnnxLowering kOnnxPoolingLowerings[] = {
    {"MaxPool", max_pool},
    {"AveragePool", average_pool},
    {"LpPool", lp_pool},
    {"GlobalAveragePool", global_average_pool},
    {"GlobalMaxPool", global_max_pool},
};

}  // namespace

std::span<const OnnxLowering> onnx_pooling_lowerings() {
  return kOnnxPoolingLowerings;
}

}  // namespace kiln
