#include "compiler_core/frontend/decompositions_convolution.h"

#include <algorithm>

namespace kiln {
namespace {

// stride - 1 zeros between neighbours along the spatial axes.
NodeId zero_dilated(GraphBuilder& b, NodeId x, const std::vector<int64_t>& stride) {
  if (std::all_of(stride.begin(), stride.end(), [](int64_t s) { return s == 1; })) return x;
  const Shape from = b.shape(x);
  Shape split = {from[0], from[1]}, joined = split;
  std::vector<Dim> low(2, 0), high(2, 0);
  for (size_t i = 0; i < stride.size(); ++i) {
    split.insert(split.end(), {from[i + 2], 1});
    joined.push_back(from[i + 2] * Dim(stride[i]));
    low.insert(low.end(), 2, 0);
    high.insert(high.end(), {0, stride[i] - 1});
  }
  const NodeId zeros = b.pad(b.reshape(x, split), low, high, constant_bits(b.dtype(x), 0));
  x = b.reshape(zeros, joined);
  for (size_t i = 0; i < stride.size(); ++i)
    x = b.slice(x, static_cast<int>(i) + 2, 0, joined[i + 2] - Dim(stride[i] - 1));
  return x;
}

// Convolves x padded by `low` and `high`, of which some may be negative: then x is cropped.
NodeId convolve_padded(GraphBuilder& b, NodeId x, NodeId w, ConvolutionAttr attr) {
  for (size_t i = 0; i < attr.low.size() && b.ok(); ++i) {
    int64_t& low = attr.low[i];
    int64_t& high = attr.high[i];
    if (low >= 0 && high >= 0) continue;
    const int64_t before = std::max<int64_t>(0, -low), after = std::max<int64_t>(0, -high);
    x = b.slice(x, static_cast<int>(i) + 2, before, b.shape(x)[i + 2] - Dim(before + after));
    low = std::max<int64_t>(0, low);
    high = std::max<int64_t>(0, high);
  }
  return b.convolution(x, w, std::move(attr));
}

// [g*c, o, window...] -> [g*o, c, window...], every window back to front.
NodeId flipped(GraphBuilder& b, NodeId w, int64_t groups) {
  const Shape shape = b.shape(w);
  const Result<Dim> channels = Dim::divide_exact(shape[0], groups);
  if (!channels)
    return b.fail_with({Code::kInvalidArgument, "channels do not divide into groups", 0});
  Shape split = {groups, *channels}, joined = {Dim(groups) * shape[1], *channels};
  split.insert(split.end(), shape.begin() + 1, shape.end());
  joined.insert(joined.end(), shape.begin() + 2, shape.end());
  std::vector<int> axes(split.size());
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int>(i);
  std::swap(axes[1], axes[2]);
  w = b.reshape(b.permute(b.reshape(w, split), axes), joined);
  for (size_t i = 2; i < shape.size() && b.ok(); ++i)
    w = b.slice(w, static_cast<int>(i), shape[i] - Dim(1), shape[i], -1);
  return w;
}

std::vector<int> exchanged(size_t rank) {
  std::vector<int> axes(rank);
  for (size_t i = 0; i < rank; ++i) axes[i] = static_cast<int>(i);
  std::swap(axes[0], axes[1]);
  return axes;
}

}  // namespace

NodeId transposed_convolution(GraphBuilder& b, NodeId x, NodeId w, const ConvolutionAttr& attr,
                              const std::vector<int64_t>& output_padding) {
  if (!b.ok()) return kInvalidNode;
  const size_t spatial = attr.stride.size();
  if (b.shape(x).size() != spatial + 2 || b.shape(w).size() != spatial + 2)
    return b.fail_with({Code::kInvalidArgument, "a transposed convolution of a wrong rank", 0});
  ConvolutionAttr made = attr;
  made.stride.assign(spatial, 1);
  for (size_t i = 0; i < spatial; ++i) {
    if (!b.shape(w)[i + 2].is_constant())
      return b.fail_with({Code::kUnsupported, "a weight of dynamic size is not covered", 0});
    const int64_t reach = attr.dilation[i] * (b.shape(w)[i + 2].constant() - 1);
    made.low[i] = reach - attr.low[i];
    made.high[i] = reach - attr.high[i] + output_padding[i];
  }
  const NodeId weight = flipped(b, w, attr.groups);
  return convolve_padded(b, zero_dilated(b, x, attr.stride), weight, std::move(made));
}

NodeId convolution_input_gradient(GraphBuilder& b, NodeId gradient, NodeId w,
                                  const ConvolutionAttr& attr, Shape x) {
  if (!b.ok()) return kInvalidNode;
  std::vector<int64_t> rest;
  for (size_t i = 0; i < attr.stride.size(); ++i) {
    const Dim missing = x[i + 2] + Dim(attr.low[i] + attr.high[i]) - Dim(1) -
                        (b.shape(w)[i + 2] - Dim(1)) * Dim(attr.dilation[i]) -
                        (b.shape(gradient)[i + 2] - Dim(1)) * Dim(attr.stride[i]);
    if (!missing.is_constant())
      return b.fail_with({Code::kUnsupported,
                          "the gradient of a strided convolution of dynamic size is not covered",
                          0});
    rest.push_back(missing.constant());
  }
  return transposed_convolution(b, gradient, w, attr, rest);
}

NodeId convolution_weight_gradient(GraphBuilder& b, NodeId gradient, NodeId x,
                                   const ConvolutionAttr& attr, Shape w) {
  if (!b.ok()) return kInvalidNode;
  const Shape from = b.shape(x), result = b.shape(gradient);
  if (!is_constant(from) || !is_constant(result) || !is_constant(w))
    return b.fail_with({Code::kUnsupported,
                        "the weight gradient of a convolution of dynamic size is not covered", 0});
  ConvolutionAttr made = attr;
  std::swap(made.stride, made.dilation);
  for (size_t i = 0; i < attr.stride.size(); ++i)
    made.high[i] = (w[i + 2].constant() - 1) * attr.dilation[i] +
                   (result[i + 2].constant() - 1) * attr.stride[i] + 1 - attr.low[i] -
                   from[i + 2].constant();
  // [n, g*c, ...] -> [c, g*n, ...]
  Shape split = {from[0], attr.groups, w[1]}, joined = {w[1], Dim(attr.groups) * from[0]};
  split.insert(split.end(), from.begin() + 2, from.end());
  joined.insert(joined.end(), from.begin() + 2, from.end());
  std::vector<int> axes(split.size());
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int>(i);
  std::swap(axes[0], axes[2]);
  const NodeId images = b.reshape(b.permute(b.reshape(x, split), axes), joined);
  const NodeId windows = b.permute(gradient, exchanged(result.size()));
  const NodeId product = convolve_padded(b, images, windows, std::move(made));  // [c, g*o, window]
  return b.ok() ? b.permute(product, exchanged(w.size())) : kInvalidNode;
}

NodeId convolution_bias_gradient(GraphBuilder& b, NodeId gradient) {
  if (!b.ok()) return kInvalidNode;
  std::vector<int> axes = {0};
  for (size_t i = 2; i < b.shape(gradient).size(); ++i) axes.push_back(static_cast<int>(i));
  return b.reduce(Op::kReduceSum, b.cast(gradient, compute_type(b.dtype(gradient))), axes);
}

}  // namespace kiln
