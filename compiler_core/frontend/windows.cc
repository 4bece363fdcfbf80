#include "compiler_core/frontend/windows.h"

#include <limits>
#include <string>

#include "compiler_core/ir/verify.h"

namespace kiln {
namespace {

// Large windows are reduced axis by axis, which takes fewer steps.
constexpr int64_t kMostAtOnce = 64;

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
Dim windows_along(Call& c, const Windows& w, size_t i, bool ceil_mode) {
  const Dim room = w.in[i] + Dim(2 * w.padding[i] - w.dilation[i] * (w.size[i] - 1) - 1);
  const auto counted = count_windows(room + Dim(ceil_mode ? w.stride[i] - 1 : 0), w.stride[i]);
  if (!counted) {
    c.unsupported("pooling with a stride over a dynamic size that it does not divide");
    return 1;
  }
  Dim count = *counted;
  if (ceil_mode) {
    // Where the last window begins, from the end of the operand on: how far is a constant, whatever
    // the size is.
    const Dim behind = (count - Dim(1)) * Dim(w.stride[i]) - w.in[i] - Dim(w.padding[i]);
    if (behind.is_constant() && behind.constant() >= 0) count = count - Dim(1);
  }
  const auto below = [](const Dim& size, int64_t least) {
    return size.is_constant() && size.constant() < least;
  };
  if (below(room, 0) || below(count, 1)) c.invalid("a window is larger than the operand");
  return count;
}

std::vector<int> window_axes(GraphBuilder& b, NodeId windows, const Windows& w) {
  std::vector<int> axes;
  const size_t rank = b.shape(windows).size();
  for (size_t i = rank - w.axes(); i < rank; ++i) axes.push_back(static_cast<int>(i));
  return axes;
}

}  // namespace

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
    if (c.ok()) w.out.push_back(windows_along(c, w, i, c.flag("ceil_mode", false)));
  }
  return w;
}

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

ConstantAttr least(DType type) {
  if (is_float(type)) return constant_bits(type, -std::numeric_limits<double>::infinity());
  const int bits = static_cast<int>(size_of(type)) * 8;
  const bool unsigned_type = type == DType::kU8 || type == DType::kBool;
  return {unsigned_type ? 0 : static_cast<uint64_t>(INT64_MIN >> (64 - bits))};
}

NodeId max_of_windows(GraphBuilder& b, NodeId windows, const Windows& w) {
  return b.ok() ? b.reduce(Op::kReduceMax, windows, window_axes(b, windows, w)) : kInvalidNode;
}

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

}  // namespace kiln
