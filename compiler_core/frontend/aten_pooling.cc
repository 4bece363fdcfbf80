// Pooling over windows of one size (windows.h). Half types are summed in f32.
#include <algorithm>
#include <functional>
#include <numeric>

#include "compiler_core/base/math.h"
#include "compiler_core/frontend/windows.h"

namespace kiln {
namespace {

template <size_t axes>
Values max_pool(Call& c) {
  const NodeId x = c.tensor("self");
  if (!c.ok()) return {};
  const Windows w = read_windows(c, c.b.shape(x), axes);
  if (!c.ok()) return {};
  return {reduce_windows(c.b, Op::kReduceMax, x, w, least(c.b.dtype(x)))};
}
template <size_t axes>
Values max_pool_with_indices(Call& c) {
  const NodeId x = c.tensor("self");
  if (!c.ok()) return {};
  const Windows w = read_windows(c, c.b.shape(x), axes);
  if (!c.ok()) return {};
  const NodeId windows = windows_of(c.b, x, w, least(c.b.dtype(x)));
  const NodeId maxima = max_of_windows(c.b, windows, w);
  return {maxima, places_of_maxima(c.b, windows, maxima, w)};
}

// Which windows an element of the operand may be in, along each axis: `reach` of them, a stride
// apart, of which the last one begins before the element or with it. REQUIRES: sizes are known.
struct WindowsOfElement {
  std::vector<int64_t> reach;
  std::vector<int64_t> behind;  // elements behind those that the last window is a stride before
  int64_t count() const {
    return std::accumulate(reach.begin(), reach.end(), int64_t{1}, std::multiplies<>());
  }
};
WindowsOfElement windows_of_element(const Windows& w) {
  WindowsOfElement windows;
  for (size_t i = 0; i < w.axes(); ++i) {
    windows.reach.push_back(ceil_div(w.dilation[i] * (w.size[i] - 1) + 1, w.stride[i]));
    const Dim end = w.in[i] + Dim(w.padding[i]) - w.out[i] * Dim(w.stride[i]);
    windows.behind.push_back(std::max<int64_t>(0, end.constant()));
  }
  return windows;
}

// x [lead..., out...], a value for each window, as one tensor [lead..., in...] for each of the
// windows that an element may be in. `outside` is the value of windows that there are not.
std::vector<NodeId> values_by_element(GraphBuilder& b, NodeId x, const Windows& w,
                                      const WindowsOfElement& windows, ConstantAttr outside) {
  const size_t lead = b.shape(x).size() - w.axes();
  std::vector<Dim> low(lead, 0), high = low;
  std::vector<int64_t> begin;
  for (size_t i = 0; i < w.axes() && b.ok(); ++i) {
    // Each value once for every element until the next window begins.
    Shape joined = b.shape(x);
    Shape repeated = joined;
    joined[lead + i] = joined[lead + i] * Dim(w.stride[i]);
    const auto after = static_cast<std::ptrdiff_t>(lead + i + 1);
    repeated.insert(repeated.begin() + after, w.stride[i]);
    std::vector<int> axes(b.shape(x).size());
    for (size_t k = 0; k < axes.size(); ++k) axes[k] = static_cast<int>(k <= lead + i ? k : k + 1);
    x = b.reshape(b.broadcast_in(x, std::move(repeated), axes), std::move(joined));
    const int64_t before = (windows.reach[i] - 1) * w.stride[i] - w.padding[i];
    begin.push_back(std::max<int64_t>(0, -before));
    low.emplace_back(std::max<int64_t>(0, before));
    high.push_back(windows.behind[i]);
  }
  x = b.pad(x, std::move(low), std::move(high), outside);
  std::vector<NodeId> values = {x};
  for (size_t i = 0; i < w.axes(); ++i) {
    std::vector<NodeId> along;
    for (const NodeId each : values)
      for (int64_t k = 0; k < windows.reach[i] && b.ok(); ++k)
        along.push_back(
            b.slice(each, static_cast<int>(lead + i), begin[i] + k * w.stride[i], w.in[i]));
    values = std::move(along);
  }
  return values;
}

// The place of each element in its plane, as i64 of `shape`, which ends with the plane's sizes.
NodeId places_in_planes(GraphBuilder& b, const Shape& shape, size_t axes) {
  NodeId place = kInvalidNode;
  for (size_t axis = shape.size() - axes; axis < shape.size(); ++axis) {
    const NodeId at = coordinate(b, shape, axis);
    const NodeId size = b.broadcast(size_value(b, shape[axis], DType::kI64), shape);
    place = place == kInvalidNode ? at : b.binary(Op::kAdd, b.binary(Op::kMul, place, size), at);
  }
  return place;
}

// Each gradient is added to the element that its index names, plane by plane.
template <size_t axes>
NodeId scatter_to_places(GraphBuilder& b, NodeId gradient, NodeId indices, const Shape& shape) {
  const auto split = [](const Shape& s) { return s.end() - static_cast<std::ptrdiff_t>(axes); };
  const Dim lead = numel(Shape(shape.begin(), split(shape)));
  const Dim plane = numel(Shape(split(shape), shape.end()));
  const Shape from = b.shape(gradient), rows = {lead, numel(Shape(split(from), from.end()))};
  const NodeId offset = b.binary(Op::kMul, coordinate(b, rows, 0),
                                 b.broadcast(size_value(b, plane, DType::kI64), rows));
  const NodeId places = b.binary(Op::kAdd, b.reshape(indices, rows), offset);
  const DType wide = compute_type(b.dtype(gradient));
  const NodeId zeros = b.broadcast(b.constant(wide, 0), {lead * plane});
  const NodeId sums = b.scatter(zeros, b.reshape(places, {numel(rows)}),
                                b.reshape(b.cast(gradient, wide), {numel(rows)}), Combine::kAdd);
  return b.reshape(sums, shape);
}

// Each element takes the gradients of the windows whose index names it, where few windows may.
template <size_t axes>
Values max_pool_backward(Call& c) {
  constexpr int64_t kMostWindows = 25;
  GraphBuilder& b = c.b;
  const NodeId gradient = c.tensor("grad_output"), x = c.tensor("self");
  const NodeId indices = c.tensor("indices");
  if (!c.ok()) return {};
  const Shape shape = b.shape(x), from = b.shape(gradient);
  if (shape.size() <= axes || from.size() != shape.size() || b.shape(indices) != from)
    return {c.invalid("needs a gradient and indices of one shape, of the operand's rank")};
  const DType type = b.dtype(gradient), wide = compute_type(type);
  const auto scattered = [&]() -> Values {
    return {b.cast(scatter_to_places<axes>(b, gradient, indices, shape), type)};
  };
  if (!is_constant(Shape(shape.end() - static_cast<std::ptrdiff_t>(axes), shape.end())))
    return scattered();
  const Windows w = read_windows(c, shape, axes);
  if (!c.ok()) return {};
  if (!std::equal(w.out.begin(), w.out.end(), from.end() - static_cast<std::ptrdiff_t>(axes)))
    return {c.invalid("needs a gradient of each window")};
  const WindowsOfElement windows = windows_of_element(w);
  if (windows.count() > kMostWindows) return scattered();
  const NodeId place = places_in_planes(b, shape, axes);
  const NodeId zero = b.broadcast(b.constant(wide, 0), shape);
  const std::vector<NodeId> gradients =
      values_by_element(b, gradient, w, windows, constant_bits(type, 0));
  const std::vector<NodeId> named =
      values_by_element(b, indices, w, windows, {static_cast<uint64_t>(-1)});
  NodeId sum = kInvalidNode;
  for (size_t i = 0; i < gradients.size() && b.ok(); ++i) {
    const NodeId part =
        b.select(b.binary(Op::kEq, named[i], place), b.cast(gradients[i], wide), zero);
    sum = i == 0 ? part : b.binary(Op::kAdd, sum, part);
  }
  return {b.cast(sum, type)};
}

// How many elements the windows along axis i hold, as f32 [out]: of the operand alone or with its
// padding; never what lies behind that.
NodeId counts(GraphBuilder& b, const Windows& w, size_t i, bool with_padding) {
  const Shape shape = {w.out[i]};
  const auto number = [&](const Dim& value) {
    return b.broadcast(size_value(b, value, DType::kI64), shape);
  };
  const NodeId begin =
      b.binary(Op::kSub, b.binary(Op::kMul, b.iota(DType::kI64, w.out[i]), number(w.stride[i])),
               number(w.padding[i]));
  NodeId end = b.binary(Op::kMin, b.binary(Op::kAdd, begin, number(w.size[i])),
                        number(w.in[i] + Dim(w.padding[i])));
  NodeId first = begin;
  if (!with_padding) {
    first = b.binary(Op::kMax, begin, number(0));
    end = b.binary(Op::kMin, end, number(w.in[i]));
  }
  return b.cast(b.binary(Op::kSub, end, first), DType::kF32);
}

// The divisor of sums over windows, in `type` and the shape [lead..., out...], which may be a node's: nodes
// move as the builder grows.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
NodeId divisor(Call& c, const Windows& w, Shape shape, DType type) {
  GraphBuilder& b = c.b;
  int64_t constant = 1;
  bool uniform = true;
  const bool with_padding = c.flag("count_include_pad", true);
  for (size_t i = 0; i < w.axes(); ++i) {
    constant *= w.size[i];
    const Dim beyond = w.behind(i) - Dim(with_padding ? w.padding[i] : 0);
    uniform = uniform && beyond.is_constant() && beyond.constant() <= 0 &&
              (with_padding || w.padding[i] == 0);
  }
  if (c.has("divisor_override")) {
    constant = c.integer("divisor_override");
    uniform = true;
  }
  if (!c.ok()) return kInvalidNode;
  if (uniform) return b.broadcast(b.constant(type, static_cast<double>(constant)), shape);
  NodeId all = kInvalidNode;
  for (size_t i = 0; i < w.axes(); ++i) {
    const int axis = static_cast<int>(shape.size() - w.axes() + i);
    const NodeId along =
        b.broadcast_in(b.cast(counts(b, w, i, with_padding), type), shape, std::span(&axis, 1));
    all = i == 0 ? along : b.binary(Op::kMul, all, along);
  }
  return all;
}

template <size_t axes>
Values avg_pool(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self");
  if (!c.ok()) return {};
  const DType type = b.dtype(x), wide = compute_type(type);
  if (!is_float(type)) return {c.unsupported("avg_pool of integers is not covered")};
  const Windows w = read_windows(c, b.shape(x), axes);
  if (!c.ok()) return {};
  const NodeId sums = reduce_windows(b, Op::kReduceSum, b.cast(x, wide), w, constant_bits(wide, 0));
  if (!c.ok()) return {};
  return {b.cast(b.binary(Op::kDiv, sums, divisor(c, w, b.shape(sums), wide)), type)};
}

// Each quotient goes to all elements of its window: windows of size over the gradients, spread by
// the stride, padded so that every element meets those it was in.
template <size_t axes>
Values avg_pool_backward(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId gradient = c.tensor("grad_output"), x = c.tensor("self");
  if (!c.ok()) return {};
  const Shape shape = b.shape(x);
  const Windows w = read_windows(c, shape, axes);
  if (!c.ok()) return {};
  const DType type = b.dtype(gradient), wide = compute_type(type);
  NodeId g = b.binary(Op::kDiv, b.cast(gradient, wide), divisor(c, w, b.shape(gradient), wide));
  if (!c.ok()) return {};
  const size_t lead = shape.size() - axes;
  Windows back{w.size, std::vector<int64_t>(axes, 1), w.dilation, std::vector<int64_t>(axes, 0), {},
               w.in};
  for (size_t i = 0; i < axes && c.ok(); ++i) {
    const int axis = static_cast<int>(lead + i);
    Shape split = b.shape(g);
    const Dim out = split[lead + i];
    split.insert(split.begin() + axis + 1, 1);
    std::vector<Dim> low(split.size(), 0), high = low;
    high[lead + i + 1] = w.stride[i] - 1;
    Shape joined = b.shape(g);
    joined[lead + i] = out * Dim(w.stride[i]);
    if (w.stride[i] > 1)
      g = b.reshape(b.pad(b.reshape(g, split), low, high, constant_bits(wide, 0)), joined);
    // Element e of the operand was in the windows that begin at e + padding - size + 1 and later.
    const Dim before = w.size[i] - 1 - w.padding[i];
    const Dim after = w.in[i] + Dim(w.padding[i]) - joined[lead + i];
    if (!after.is_constant() || before.constant() < 0) {
      c.unsupported("this padding, or a dynamic size, is not covered");
      return {};
    }
    std::vector<Dim> in_front(joined.size(), 0), behind = in_front;
    in_front[lead + i] = before;
    behind[lead + i] = std::max<int64_t>(0, after.constant());
    g = b.pad(g, in_front, behind, constant_bits(wide, 0));
    if (!c.ok()) return {};
    back.in.push_back(b.shape(g)[lead + i]);
  }
  return {b.cast(reduce_windows(b, Op::kReduceSum, g, back, constant_bits(wide, 0)), type)};
}

// Each value at the place in its plane that max_pool found it at; zeros elsewhere.
template <size_t axes>
Values max_unpool(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self"), indices = c.tensor("indices");
  const std::vector<Dim> size = c.sizes("output_size");
  const Shape from = b.shape(x);
  if (!c.ok() || from.size() < axes || size.size() != axes || b.shape(indices) != from)
    return {c.invalid("max_unpool needs values and their places, of one shape")};
  Shape result(from.begin(), from.end() - static_cast<std::ptrdiff_t>(axes));
  const Dim planes = numel(result), plane = numel(Shape(size.begin(), size.end()));
  const Result<Dim> each = Dim::divide_exact(numel(from), planes);
  if (!each || !plane.is_constant()) return {c.unsupported("a symbolic size is not covered")};
  const Shape rows = {planes, *each};
  const NodeId stride = b.broadcast(b.constant_int(DType::kI64, plane.constant()), rows);
  const NodeId place = b.binary(Op::kAdd, b.reshape(b.cast(indices, DType::kI64), rows),
                                b.binary(Op::kMul, coordinate(b, rows, 0), stride));
  const NodeId zero = b.broadcast(b.constant(b.dtype(x), 0), {planes * plane});
  const NodeId set =
      b.scatter(zero, b.reshape(place, {numel(rows)}), b.reshape(x, {numel(rows)}), Combine::kSet);
  result.insert(result.end(), size.begin(), size.end());
  return {b.reshape(set, result)};
}

constexpr Lowering kPoolingLowerings[] = {
    {"aten.max_unpool2d.default", max_unpool<2>},
    {"aten.max_unpool3d.default", max_unpool<3>},
    {"aten.max_pool1d.default", max_pool<1>},
    {"aten.max_pool2d.default", max_pool<2>},
    {"aten.max_pool3d.default", max_pool<3>},
    {"aten.max_pool1d_with_indices.default", max_pool_with_indices<1>},
    {"aten.max_pool2d_with_indices.default", max_pool_with_indices<2>},
    {"aten.max_pool3d_with_indices.default", max_pool_with_indices<3>},
    {"aten.max_pool2d_with_indices_backward.default", max_pool_backward<2>},
    {"aten.max_pool3d_with_indices_backward.default", max_pool_backward<3>},
    {"aten.avg_pool1d.default", avg_pool<1>},
    {"aten.avg_pool2d.default", avg_pool<2>},
    {"aten.avg_pool3d.default", avg_pool<3>},
    {"aten.avg_pool2d_backward.default", avg_pool_backward<2>},
    {"aten.avg_pool3d_backward.default", avg_pool_backward<3>},
};

}  // namespace

std::span<const Lowering> pooling_lowerings() {
  return kPoolingLowerings;
}

}  // namespace kiln
