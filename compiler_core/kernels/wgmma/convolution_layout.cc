#include "compiler_core/kernels/wgmma/convolution_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/device_text.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

constexpr int kTurnThreads = 256, kTurnPitch = 66;  // turn.cuh

// Whether a stride of halves is of whole 16 bytes, where an axis of this size has any.
bool is_unit(int64_t stride, int64_t size) {
  return size == 1 || (stride > 0 && stride % 8 == 0);
}

// Whether windows can be read from where they are: 16 bytes of channels at a time.
bool lies_channels_last(const ConvolutionProblem& p) {
  constexpr int64_t kMostTileRows = 256;
  const MatmulOperand& x = p.product.b;
  // An int counts the bytes of the images that a tile's rows are of (wgmma_windows.cuh).
  const int64_t positions = std::max<int64_t>(p.out[1] * p.out[2], 1);
  int64_t images = kMostTileRows / positions + 2;
  if (p.images.is_constant()) images = std::min(images, p.images.constant());
  const int64_t bytes = 2 * (images * x.batch_strides[0] + p.in[1] * p.x_at[1]);
  return p.x_channel == 1 && p.channels % 8 == 0 && x.offset % 8 == 0 &&
         is_unit(p.x_at[1], p.in[1]) && is_unit(p.x_at[2], p.in[2]) &&
         is_unit(x.batch_strides[0], p.product.batch[0]) && bytes < int64_t{1} << 31;
}

}  // namespace

MatmulProblem product_of(const ConvolutionProblem& convolution) {
  MatmulProblem product = convolution.product;
  product.batch = {product.batch[0]};
  product.batches = product.batch[0];
  if (!convolution.channels_last) return product;
  product.m = product.batches * convolution.product.n;
  product.n = convolution.product.m;
  std::swap(product.a, product.b);
  product.batch.clear();
  product.batches = 1;
  return product;
}

bool has_im2col(const ConvolutionProblem& p) {
  constexpr int64_t kMostCorner = 127, kMostOffset = 255, kMostStride = 8;
  if (!p.channels_last || !lies_channels_last(p)) return false;
  for (const size_t axis : {1, 2}) {
    const int64_t upper = (p.out[axis] - 1) * p.stride[axis] - p.low[axis] - (p.in[axis] - 1);
    if (p.low[axis] > kMostCorner || p.low[axis] < -kMostCorner || upper > kMostCorner ||
        upper < -kMostCorner || p.stride[axis] > kMostStride ||
        (p.window[axis] - 1) * p.dilation[axis] > kMostOffset)
      return false;
  }
  return true;
}

ProductSizes ConvolutionLayout::product_sizes() const {
  if (problem_.channels_last) return {problem_.images * problem_.product.n};
  return {product_.m, {problem_.images}};
}

ConvolutionLayout::ConvolutionLayout(const Graph& graph, const WgmmaConvolutionSchedule& schedule)
    : graph_(graph),
      schedule_(schedule),
      problem_(ConvolutionProblem::of(graph)),
      product_(product_of(problem_)),
      images_in_place_(problem_.channels_last && lies_channels_last(problem_)),
      channels_(images_in_place_ ? problem_.channels
                                 : round_up(problem_.channels, WgmmaMatmulSchedule::kDepth)),
      weight_channels_(schedule.im2col == 1
                           ? round_up(problem_.channels, WgmmaMatmulSchedule::kDepth)
                           : channels_),
      window_(problem_.window[1] * problem_.window[2]),
      height_(problem_.reach()[1]),
      width_(problem_.reach()[2]),
      rows_(!problem_.channels_last ? round_up(product_.m, schedule.bm)
            : schedule.im2col == 1  ? round_up(product_.n, schedule.bn)
                                    : product_.n),
      weights_in_place_(schedule.im2col == 1
                            ? is_mappable_weight()
                            : problem_.channels_last && channels_ == problem_.channels &&
                                  is_contiguous_weight()) {}

int64_t ConvolutionLayout::steps() const {
  return ceil_div(window_ * weight_channels_, int64_t{WgmmaMatmulSchedule::kDepth});
}

// A line after another, each its windows' elements, each their channels.
bool ConvolutionLayout::is_contiguous_weight() const {
  const ConvolutionProblem& p = problem_;
  return p.w_channel == 1 && w().offset % 8 == 0 && (p.window[2] == 1 || p.w_at[2] == p.channels) &&
         (p.window[1] == 1 || p.w_at[1] == p.channels * p.window[2]) &&
         w().row_stride == window_ * p.channels;
}

// The copy engine reads lines of weights as they lie.
bool ConvolutionLayout::is_mappable_weight() const {
  const ConvolutionProblem& p = problem_;
  return p.w_channel == 1 && w().offset % 8 == 0 && is_unit(p.w_at[2], p.window[2]) &&
         is_unit(p.w_at[1], p.window[1]) && is_unit(w().row_stride, product_.n);
}

std::string ConvolutionLayout::place(bool in_place, const MatmulOperand& operand,
                                     const Dim& offset) const {
  return in_place ? fmt::format("reinterpret_cast<const char*>(in{} + {}L)", operand.input,
                                operand.offset)
                  : fmt::format("workspace + {}", long_text(offset));
}

// Positions of an image side by side that one load takes; 0: they lie otherwise.
int64_t ConvolutionLayout::vector() const {
  const ConvolutionProblem& p = problem_;
  if (p.x_at[2] != 1 || p.x_at[1] != p.in[2] || reached_height() <= 0 || reached_width() <= 0)
    return 0;
  for (const int64_t count : {8, 4, 2})
    if (p.in[1] * p.in[2] % count == 0 && p.x_channel % count == 0 && x().offset % count == 0 &&
        x().batch_strides[0] % count == 0)
      return count;
  return 0;
}

// Windows reach so much of an image.
int64_t ConvolutionLayout::reached_height() const {
  return std::min(problem_.in[1], height_ - problem_.low[1]);
}
int64_t ConvolutionLayout::reached_width() const {
  return std::min(problem_.in[2], width_ - problem_.low[2]);
}

Dim ConvolutionLayout::image_tiles() const {
  if (images_in_place_) return 0;
  const int64_t turned = vector() > 0 ? problem_.in[1] * problem_.in[2] : height_ * width_;
  return images() * (ceil_div(turned, int64_t{64}) * (channels_ / WgmmaMatmulSchedule::kDepth));
}

// Where the number of images has symbols, some find nothing to do.
Dim ConvolutionLayout::border_blocks() const {
  if (vector() == 0 || images_in_place_) return 0;
  const int64_t border = height_ * width_ - reached_height() * reached_width();
  const int64_t pieces = border * (channels_ / 8);
  if (!images().is_constant()) return images() * ceil_div(pieces, int64_t{kTurnThreads});
  return ceil_div(images().constant() * pieces, int64_t{kTurnThreads});
}

int64_t ConvolutionLayout::weight_blocks() const {
  if (weights_in_place_) return 0;
  if (weight_parts() > 0) return ceil_div(rows_ * chunks(), weight_parts());
  return ceil_div(rows_ * window_ * weight_channels_ / 8, int64_t{kTurnThreads});
}

// How many parts of 64 channels of a line of weights a block's threads turn at a time, where all that
// a line has lies side by side, channel by channel; 0: it lies otherwise.
int64_t ConvolutionLayout::weight_parts() const {
  const ConvolutionProblem& p = problem_;
  const bool lies_so = window_ > 1 && weight_channels_ % WgmmaMatmulSchedule::kDepth == 0 &&
                       p.w_channel == window_ && p.w_at[2] == 1 &&
                       (p.window[1] == 1 || p.w_at[1] == p.window[2]) && w().row_stride % 8 == 0 &&
                       w().offset % 8 == 0 && p.channels * window_ % 8 == 0;
  if (!lies_so || window_ * WgmmaMatmulSchedule::kDepth > WgmmaMatmulSchedule::kDepth * kTurnPitch)
    return 0;
  return std::max<int64_t>(1, kTurnThreads / (window_ * 8));
}

// Line after line; for the copy engine tile after tile, each step of it as the tensor cores read it.
std::string ConvolutionLayout::print_place_of_weights() const {
  if (schedule_.im2col == 0)
    return fmt::format("    return (row * {}L + place) * {} + channel;\n", window_,
                       weight_channels_);
  return fmt::format(
      "    const int line = row % {0}, step = place * {1} + channel / 64;\n"
      "    return ((row / {0} * {2}L + step) * {0} + line) * 64 + (channel / 8 % 8 ^ line % 8) * "
      "8;\n",
      schedule_.bn, chunks(), steps());
}

std::string ConvolutionLayout::print_types() const {
  const ConvolutionProblem& p = problem_;
  std::string text = fmt::format(
      "struct X {{\n"
      "  static constexpr int channels = {}, all_channels = {}, positions = {};\n"
      "  static constexpr long channel_stride = {}, image_stride = {};\n"
      "  static constexpr bool positions_inner = {};\n"
      "  KILN_INLINE bool locate(int position, long& at) {{\n"
      "    const int h = position / {} - {}, w = position % {} - {};\n"
      "    at = static_cast<long>(h) * {} + static_cast<long>(w) * {};\n"
      "    return static_cast<unsigned>(h) < {}u && static_cast<unsigned>(w) < {}u;\n  }}\n",
      p.channels, channels_, height_ * width_, p.x_channel, x().batch_strides[0], p.x_channel != 1,
      width_, p.low[1], width_, p.low[2], p.x_at[1], p.x_at[2], p.in[1], p.in[2]);
  text += fmt::format(
      "  static constexpr int vector = {}, plane = {}, row = {}, all_width = {};\n"
      "  static constexpr int height = {}, width = {}, above = {}, before = {};\n}};\n",
      vector(), p.in[1] * p.in[2], p.in[2], width_, reached_height(), reached_width(), p.low[1],
      p.low[2]);
  text += fmt::format(
      "struct W {{\n"
      "  static constexpr int rows = {}, all_rows = {}, window = {}, channels = {};\n"
      "  static constexpr int all_channels = {}, parts = {};\n"
      "  KILN_INLINE long at(int row, int place, int channel) {{\n"
      "    return row * {}L + channel * {}L + place / {} * {}L + place % {} * {}L;\n  }}\n"
      "  KILN_INLINE long to(int row, int place, int channel) {{\n{}  }}\n}};\n",
      p.product.m, rows_, window_, p.channels, weight_channels_, weight_parts(), w().row_stride,
      p.w_channel, p.window[2], p.w_at[1], p.window[2], p.w_at[2], print_place_of_weights());
  return text;
}

void ConvolutionLayout::add_turn(Source& source, int64_t counters, const Dim& counters_at) const {
  if (!has_turn(counters)) return;
  const std::string_view type = memory_type(product_.stored);
  Dim blocks = 0;
  std::string body = "  const int block = static_cast<int>(block_index());\n";
  const auto add = [&](const Dim& count, const std::string& call) {
    if (count.is(0)) return;
    body += fmt::format("  {}if (block < {})\n    {};\n", blocks.is(0) ? "" : "else ",
                        blocks + count, call);
    blocks = blocks + count;
  };
  add(image_tiles(),
      fmt::format("{}<X>(in{} + {}L, reinterpret_cast<{}*>(workspace), block)",
                  vector() > 0 ? "turn_planes" : "turn_images", x().input, x().offset, type));
  add(border_blocks(),
      fmt::format("turn_border<X>(reinterpret_cast<{}*>(workspace), block - static_cast<int>({}), "
                  "static_cast<int>({}))",
                  type, blocks, images()));
  add(weight_blocks(),
      fmt::format("{}<W>(in{} + {}L, reinterpret_cast<{}*>(workspace + {}), block - "
                  "static_cast<int>({}))",
                  weight_parts() > 0 ? "turn_weight_lines" : "turn_weights", w().input, w().offset,
                  type, long_text(image_bytes()), blocks));
  add(counters > 0 ? 1 : 0,
      fmt::format("clear_counters(reinterpret_cast<unsigned*>(workspace + {}), {})",
                  long_text(counters_at), counters));
  source.text += print_types() + std::string(device_text("turn.cuh")) +
                 cuda_kernel("turn", graph_, kTurnThreads, 1, body);
  source.recipe.phases.insert(
      source.recipe.phases.begin(),
      {"turn", Grid(blocks), kTurnThreads, 1, WgmmaMatmulSchedule::kDepth * kTurnPitch * 2});
}

}  // namespace kiln
