// The attributes that convolutions and poolings share: strides, dilations and pads of windows over
// spatial axes, explicit or by auto_pad's rules.
#pragma once

#include "compiler_core/frontend/onnx/call.h"

namespace kiln {

// One entry for each spatial axis.
struct SpatialWindows {
  std::vector<int64_t> size, stride, dilation, low, high;
  size_t axes() const { return size.size(); }
};

// Reads strides, dilations, pads and auto_pad for windows of `size` over `spatial`, the sizes of
// the spatial axes. What does not fit fails the call.
SpatialWindows read_spatial(OnnxCall& c, const Shape& spatial, std::vector<int64_t> size);

// The spatial axes of [n, channels, ...]; fails the call when there are not one to three.
Shape spatial_sizes(OnnxCall& c, const Shape& shape);

// A list attribute with one number for each axis, or `fallback` for each.
std::vector<int64_t> list_or(OnnxCall& c, std::string_view name, size_t count, int64_t fallback);

}  // namespace kiln
