// Pooling: windows that slide over the last axes are one View of the padded operand, whose window
// axes are reduced. Halves are summed in f32.
#include <algorithm>
#include <limits>
#include <optional>

#include "compiler_core/frontend/decompositions.h"

namespace kiln {
namespace {

// How windows slide over the last axes of a tensor; one entry for each of them.
struct Windows {
  std::vector<int64_t> size, stride, dilation, padding;
  Shape in, out;
  // Zeros or identities that the windows reach behind the operand.
  Dim behind(size_t i) const {
    return (out[i] - Dim(1)) * Dim(stride[i]) + Dim(dilation[i] * (size[i] - 1) + 1) - in[i] -
           Dim(padding[i]);
  }
  size_t axes() const { return size.size(); }
};

std::vector<int64_t> numbers(Call& c, std::string_view name, size_t count,
                             const std::vector<int64_t>& fallback) {
  if (!c.has(name)) return fallback;
  const std::vector<Dim> given = c.sizes(name);
  if (!c.ok() || given.empty()) return fallback;
  std::vector<int64_t> result;
  for (size_t i = 0; i < count; ++i) {
    const Dim& value = given[given.size() == count ? i : 0];
    if (!value.is_constant() || value.constant() < 0 || value.constant() > (int64_t{1} << 31)) {
      c.unsupported(std::string(name) + " is dynamic or out of range");
      return fallback;
    }
    result.push_back(value.constant());
  }
  return result;
}

// How many windows there are along axis i. With ceil_mode a last one may reach beyond the operand,
// as long as it begins before its end.
Dim count_windows(Call& c, const Windows& w, size_t i, bool ceil_mode) {
  const Dim room = w.in[i] + Dim(2 * w.padding[i] - w.dilation[i] * (w.size[i] - 1) - 1);
  if (w.stride[i] == 1) return room + Dim(1);
  if (!room.is_constant()) {
    c.unsupported("pooling with a stride over a dynamic size is not covered");
    return 1;
  }
  const int64_t more = ceil_mode ? w.stride[i] - 1 : 0;
  int64_t count = (room.constant() + more) / w.stride[i] + 1;
  if (ceil_mode && (count - 1) * w.stride[i] >= w.in[i].constant() + w.padding[i]) --count;
  if (room.constant() < 0 || count < 1) c.invalid("a window is larger than the operand");
  return count;
}

Windows read_windows(Call& c, const Shape& shape, size_t axes) {
  Windows w;
  const std::vector<int64_t> ones(axes, 1);
  if (shape.size() < axes + 1) {
    c.invalid("needs a channel axis and " + std::to_string(axes) + " spatial axes");
    return w;
  }
  w.size = numbers(c, "kernel_size", axes, ones);
  w.stride = numbers(c, "stride", axes, w.size);
  w.dilation = numbers(c, "dilation", axes, ones);
  w.padding = numbers(c, "padding", axes, std::vector<int64_t>(axes, 0));
  w.in.assign(shape.end() - static_cast<std::ptrdiff_t>(axes), shape.end());
  for (size_t i = 0; i < axes && c.ok(); ++i) {
    if (w.size[i] < 1 || w.stride[i] < 1 || w.dilation[i] < 1)
      c.invalid("kernel_size, stride and dilation must be positive");
    if (c.ok()) w.out.push_back(count_windows(c, w, i, c.flag("ceil_mode", false)));
  }
  return w;
}

// x [lead..., in...], with `outside` beyond its edges, as [lead..., out..., size...].
NodeId windows_of(GraphBuilder& b, NodeId x, const Windows& w, ConstantAttr outside) {
  if (!b.ok()) return kInvalidNode;
  const size_t lead = b.shape(x).size() - w.axes();
  std::vector<Dim> low(lead, 0), high(lead, 0);
  bool pads = false;
  for (size_t i = 0; i < w.axes(); ++i) {
    const Dim behind = w.behind(i);
    low.emplace_back(w.padding[i]);
    high.push_back(behind.is_constant() && behind.constant() < 0 ? Dim(0) : behind);
    pads = pads || w.padding[i] > 0 || !high.back().is(0);
  }
  if (pads) x = b.pad(x, low, high, outside);
  if (!b.ok()) return kInvalidNode;
  const Shape from = b.shape(x);
  const std::vector<Dim> dense = contiguous_strides(from);
  Shape shape(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(lead));
  std::vector<Dim> strides(dense.begin(), dense.begin() + static_cast<std::ptrdiff_t>(lead));
  for (size_t i = 0; i < w.axes(); ++i) {
    shape.push_back(w.out[i]);
    strides.push_back(dense[lead + i] * Dim(w.stride[i]));
  }
  for (size_t i = 0; i < w.axes(); ++i) {
    shape.emplace_back(w.size[i]);
    strides.push_back(dense[lead + i] * Dim(w.dilation[i]));
  }
  return b.view(x, std::move(shape), std::move(strides), 0);
}

std::vector<int> window_axes(GraphBuilder& b, NodeId windows, const Windows& w) {
  std::vector<int> axes;
  const size_t rank = b.shape(windows).size();
  for (size_t i = rank - w.axes(); i < rank; ++i) axes.push_back(static_cast<int>(i));
  return axes;
}

// The identity of max.
ConstantAttr least(DType type) {
  if (is_float(type)) return constant_bits(type, -std::numeric_limits<double>::infinity());
  const int bits = static_cast<int>(size_of(type)) * 8;
  const bool unsigned_type = type == DType::kU8 || type == DType::kBool;
  return {unsigned_type ? 0 : static_cast<uint64_t>(INT64_MIN >> (64 - bits))};
}

NodeId max_of_windows(GraphBuilder& b, NodeId windows, const Windows& w) {
  return b.ok() ? b.reduce(Op::kReduceMax, windows, window_axes(b, windows, w)) : kInvalidNode;
}

// Large windows are reduced axis by axis, which takes fewer steps.
constexpr int64_t kMostAtOnce = 64;
NodeId reduce_windows(GraphBuilder& b, Op op, NodeId x, const Windows& w, ConstantAttr outside) {
  int64_t elements = 1;
  for (const int64_t size : w.size) elements *= size;
  if (elements <= kMostAtOnce || w.axes() == 1) {
    const NodeId windows = windows_of(b, x, w, outside);
    return b.ok() ? b.reduce(op, windows, window_axes(b, windows, w)) : kInvalidNode;
  }
  for (size_t i = w.axes(); i-- > 0 && b.ok();) {
    // The windowed axis last; the result's stands where it was.
    const size_t rank = b.shape(x).size(), axis = rank - w.axes() + i;
    std::vector<int> to_last, back;
    for (size_t k = 0; k < rank; ++k)
      if (k != axis) to_last.push_back(static_cast<int>(k));
    to_last.push_back(static_cast<int>(axis));
    for (size_t k = 0; k < rank; ++k)
      back.push_back(static_cast<int>(k < axis ? k : k == axis ? rank - 1 : k - 1));
    const Windows one{{w.size[i]},    {w.stride[i]}, {w.dilation[i]},
                      {w.padding[i]}, {w.in[i]},     {w.out[i]}};
    x = b.permute(reduce_windows(b, op, b.permute(x, to_last), one, outside), back);
  }
  return x;
}

// The place in its plane of each window's maximum, as i64: of several the first, a NaN first of
// all.
NodeId places_of_maxima(GraphBuilder& b, NodeId windows, NodeId maxima, const Windows& w) {
  if (!b.ok()) return kInvalidNode;
  const Shape shape = b.shape(windows);
  std::vector<int> kept;
  for (size_t i = 0; i + w.axes() < shape.size(); ++i) kept.push_back(static_cast<int>(i));
  const NodeId found =
      b.binary(Op::kOr, b.binary(Op::kEq, windows, b.broadcast_in(maxima, shape, kept)),
               b.binary(Op::kNe, windows, windows));
  const NodeId nowhere = b.broadcast(b.constant_int(DType::kI64, INT64_MAX), shape);
  NodeId place = kInvalidNode;
  NodeId inside = kInvalidNode;
  for (size_t i = 0; i < w.axes() && b.ok(); ++i) {
    const auto scaled = [&](NodeId x, int64_t factor) {
      return b.binary(Op::kMul, x, b.broadcast(b.constant_int(DType::kI64, factor), shape));
    };
    const auto less = [&](NodeId x, NodeId y) { return b.binary(Op::kLt, x, y); };
    const auto number = [&](const Dim& value) {
      return b.broadcast(size_value(b, value, DType::kI64), shape);
    };
    const size_t at = shape.size() - 2 * w.axes() + i;
    NodeId x = b.binary(Op::kAdd, scaled(coordinate(b, shape, at), w.stride[i]),
                        scaled(coordinate(b, shape, at + w.axes()), w.dilation[i]));
    x = b.binary(Op::kSub, x, number(w.padding[i]));
    const NodeId in = b.binary(Op::kAnd, less(number(Dim(-1)), x), less(x, number(w.in[i])));
    inside = i == 0 ? in : b.binary(Op::kAnd, inside, in);
    place = i == 0 ? x : b.binary(Op::kAdd, b.binary(Op::kMul, place, number(w.in[i])), x);
  }
  const NodeId candidates = b.select(b.binary(Op::kAnd, found, inside), place, nowhere);
  return b.ok() ? b.reduce(Op::kReduceMin, candidates, window_axes(b, windows, w)) : kInvalidNode;
}

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

// Each gradient is added to the element that its index names, plane by plane.
template <size_t axes>
Values max_pool_backward(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId gradient = c.tensor("grad_output"), x = c.tensor("self");
  const NodeId indices = c.tensor("indices");
  if (!c.ok()) return {};
  const Shape shape = b.shape(x), from = b.shape(gradient);
  if (shape.size() <= axes || from.size() != shape.size() || b.shape(indices) != from)
    return {c.invalid("needs a gradient and indices of one shape, of the operand's rank")};
  const auto planes = [](const Shape& s) {
    return numel(Shape(s.begin(), s.end() - static_cast<std::ptrdiff_t>(axes)));
  };
  const Dim lead = planes(shape);
  const Dim plane = numel(Shape(shape.end() - static_cast<std::ptrdiff_t>(axes), shape.end()));
  const Dim pooled = numel(Shape(from.end() - static_cast<std::ptrdiff_t>(axes), from.end()));
  const Shape rows = {lead, pooled};
  const NodeId offset = b.binary(Op::kMul, coordinate(b, rows, 0),
                                 b.broadcast(size_value(b, plane, DType::kI64), rows));
  const NodeId places = b.binary(Op::kAdd, b.reshape(indices, rows), offset);
  const DType type = b.dtype(gradient), wide = compute_type(type);
  const NodeId zeros = b.broadcast(b.constant(wide, 0), {lead * plane});
  const NodeId sums = b.scatter(zeros, b.reshape(places, {lead * pooled}),
                                b.reshape(b.cast(gradient, wide), {lead * pooled}), Combine::kAdd);
  return {b.cast(b.reshape(sums, shape), type)};
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

// What sums over windows are divided by, in `type` and the shape [lead..., out...].
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

// Along one axis, `out` windows that begin at floor(i * in / out) and end at ceil((i + 1) * in /
// out), each reduced.
NodeId adapt(Call& c, NodeId x, size_t axis, const Dim& out, Op op) {
  GraphBuilder& b = c.b;
  constexpr int64_t kMostSlices = 256;
  const Shape shape = b.shape(x);
  const Dim in = shape[axis];
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

constexpr Lowering kLowerings[] = {
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

std::span<const Lowering> pooling_lowerings() {
  return kLowerings;
}

}  // namespace kiln
