#include "compiler_core/plan/channels_last.h"

#include <algorithm>

#include "compiler_core/ir/affine.h"

namespace kiln {
namespace {

constexpr int64_t kFewResults = 32;  // fewer fill too little of a tile, where windows are gathered
constexpr int64_t kVector = 8;       // elements of 16 bytes
// Bytes of all images with their padding, and of the weights, as kernels count them.
constexpr int64_t kMostImageBytes = int64_t{1} << 30, kMostWeightBytes = int64_t{1} << 29;
constexpr int64_t kMostReach = int64_t{1} << 14;  // of a row or a column of windows
// Elements of a window that one channel has for itself, and how many channels' results lie side by side.
constexpr int64_t kMostWindow = 121, kFewChannels = 16;

// Every channel has a window and one result. `dilation`: along a row.
bool may_end_depthwise(const std::vector<int64_t>& in, const std::vector<int64_t>& weight,
                       const std::vector<int64_t>& out, int64_t dilation) {
  return in[1] == out[1] && weight[1] == 1 && in[1] >= kFewChannels &&
         weight[2] * weight[3] <= kMostWindow &&
         (weight[3] - 1) * dilation + 1 <= kMostDepthwiseReach &&
         std::max(in[0] * in[2] * in[3], out[0] * out[2] * out[3]) * in[1] * 2 < kMostImageBytes;
}

// A View whose elements lie apart as calls choose.
bool has_open_strides(const Node& x) {
  if (x.op != Op::kView) return false;
  const auto& view = std::get<ViewAttr>(x.attr);
  return !view.offset.is_constant() ||
         !std::ranges::all_of(view.strides, [](const Dim& stride) { return stride.is_constant(); });
}

}  // namespace

std::optional<std::vector<int64_t>> image_sizes(const Shape& shape) {
  std::vector<int64_t> sizes;
  for (const Dim& size : shape) {
    if (!size.is_constant() && !sizes.empty()) return std::nullopt;
    sizes.push_back(size.is_constant() ? size.constant() : 1);
  }
  return sizes;
}

int channels_last_axis(int axis) {
  constexpr int kPlaces[] = {0, 3, 1, 2};
  return kPlaces[axis];
}

bool puts_channels_last(const Graph& graph, const Node& view) {
  if (view.op != Op::kView) return false;
  const Shape& from = graph.node(view.operands[0]).shape;
  if (from.size() != 4 || view.shape.size() != 4) return false;
  Shape shape(4);
  std::vector<Dim> strides(4);
  const std::vector<Dim> contiguous = contiguous_strides(from);
  for (size_t axis = 0; axis < 4; ++axis) {
    const auto to = static_cast<size_t>(channels_last_axis(static_cast<int>(axis)));
    shape[to] = from[axis];
    strides[to] = contiguous[axis];
  }
  const ViewAttr expected = canonical_view(shape, {std::move(strides), 0});
  return view.shape == shape && canonical_view(shape, std::get<ViewAttr>(view.attr)) == expected;
}

bool may_end_channels_last(const Graph& graph, NodeId convolution) {
  const Node& node = graph.node(convolution);
  if (node.op != Op::kConvolution || node.shape.size() != 4 || node.dtype != DType::kF32)
    return false;
  const Node &x = graph.node(node.operands[0]), &w = graph.node(node.operands[1]);
  const auto& attr = std::get<ConvolutionAttr>(node.attr);
  const auto sizes_of_x = image_sizes(x.shape), sizes_of_result = image_sizes(node.shape);
  if (!is_16_bit_float(x.dtype) || !sizes_of_x || !sizes_of_result || !is_constant(w.shape) ||
      has_open_strides(x))
    return false;
  const std::vector<int64_t>&in = *sizes_of_x, &out = *sizes_of_result;
  const std::vector<int64_t> weight = constant_sizes(w.shape);
  if (std::ranges::count(out, 0) > 0 || std::ranges::count(in, 0) > 0) return false;
  if (in[1] % kVector != 0 || out[1] % kVector != 0) return false;
  if (attr.groups != 1)
    return attr.groups == in[1] && may_end_depthwise(in, weight, out, attr.dilation[1]);
  if (out[1] < kFewResults && weight[2] * weight[3] > 1) return false;
  const int64_t depth = (in[1] + 63) / 64 * 64 * 2;
  int64_t positions = 1;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t reach =
        (out[i + 2] - 1) * attr.stride[i] + (weight[i + 2] - 1) * attr.dilation[i] + 1;
    if (std::max(reach, in[i + 2]) >= kMostReach) return false;
    positions *= std::max(reach, in[i + 2]);
  }
  return in[0] * positions * depth < kMostImageBytes &&
         (out[1] + 256) * weight[2] * weight[3] * depth < kMostWeightBytes;
}

NodeId find_channels_last_view(const Graph& graph, NodeId convolution) {
  if (!may_end_channels_last(graph, convolution)) return kInvalidNode;
  NodeId reader = kInvalidNode;
  for (NodeId id = convolution + 1; id < graph.size(); ++id) {
    const auto& operands = graph.node(id).operands;
    if (std::ranges::find(operands, convolution) == operands.end()) continue;
    if (reader != kInvalidNode) return kInvalidNode;
    reader = id;
  }
  if (reader == kInvalidNode || std::ranges::count(graph.outputs(), convolution) > 0)
    return kInvalidNode;
  return puts_channels_last(graph, graph.node(reader)) ? reader : kInvalidNode;
}

NodeId convolution_result(const Graph& workload, NodeId convolution) {
  const NodeId view = find_channels_last_view(workload, convolution);
  return view == kInvalidNode ? convolution : view;
}

}  // namespace kiln
