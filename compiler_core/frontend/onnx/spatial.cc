#include "compiler_core/frontend/onnx/spatial.h"

#include <algorithm>

namespace kiln {
namespace {

bool fits(const std::vector<int64_t>& values, int64_t least) {
  // Products of these with sizes stay far from the end of 64 bits.
  return std::all_of(values.begin(), values.end(),
                     [&](int64_t value) { return value >= least && value <= int64_t{1} << 30; });
}

// SAME_UPPER and SAME_LOWER: as many results as strides in the axis, the odd zero at the end or at
// the beginning.
void pad_to_same(OnnxCall& c, const Shape& spatial, bool lower, SpatialWindows& w) {
  for (size_t i = 0; i < w.axes(); ++i) {
    int64_t zeros = w.dilation[i] * (w.size[i] - 1);
    if (w.stride[i] != 1) {
      if (!spatial[i].is_constant()) {
        c.unsupported(
            "auto_pad with a stride over a dynamic size is not covered; export with "
            "explicit pads");
        return;
      }
      const int64_t size = spatial[i].constant();
      const int64_t out = (size + w.stride[i] - 1) / w.stride[i];
      zeros = std::max<int64_t>(0, (out - 1) * w.stride[i] + zeros + 1 - size);
    }
    w.low[i] = lower ? zeros - zeros / 2 : zeros / 2;
    w.high[i] = zeros - w.low[i];
  }
}

}  // namespace

std::vector<int64_t> list_or(OnnxCall& c, std::string_view name, size_t count, int64_t fallback) {
  std::vector<int64_t> values = c.list(name).value_or(std::vector<int64_t>());
  if (values.empty()) values.assign(count, fallback);
  if (values.size() != count) {
    c.invalid("attribute '" + std::string(name) + "' needs " + std::to_string(count) + " numbers");
    values.assign(count, fallback);
  }
  return values;
}

Shape spatial_sizes(OnnxCall& c, const Shape& shape) {
  if (shape.size() < 3 || shape.size() > 5) {
    c.invalid("needs a tensor [batch, channels, ...] with one to three spatial axes, not " +
              to_string(shape));
    return {1};
  }
  return {shape.begin() + 2, shape.end()};
}

SpatialWindows read_spatial(OnnxCall& c, const Shape& spatial, std::vector<int64_t> size) {
  const size_t axes = spatial.size();
  SpatialWindows w;
  w.size = std::move(size);
  w.stride = list_or(c, "strides", axes, 1);
  w.dilation = list_or(c, "dilations", axes, 1);
  const std::vector<int64_t> pads = list_or(c, "pads", 2 * axes, 0);
  w.low.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(axes));
  w.high.assign(pads.begin() + static_cast<std::ptrdiff_t>(axes), pads.end());
  if (w.size.size() != axes || !fits(w.size, 1) || !fits(w.stride, 1) || !fits(w.dilation, 1) ||
      !fits(w.low, 0) || !fits(w.high, 0)) {
    c.invalid(
        "kernel_shape, strides and dilations must be positive and pads not negative, one for "
        "each spatial axis");
    w.size.assign(axes, 1);
    w.stride = w.dilation = w.size;
    return w;
  }
  const std::string_view automatic = c.text("auto_pad", "NOTSET");
  if (automatic == "VALID") w.low = w.high = std::vector<int64_t>(axes, 0);
  if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER")
    pad_to_same(c, spatial, automatic == "SAME_LOWER", w);
  else if (automatic != "VALID" && automatic != "NOTSET" && !automatic.empty())
    c.invalid("there is no auto_pad '" + std::string(automatic.substr(0, 40)) + "'");
  return w;
}

}  // namespace kiln
