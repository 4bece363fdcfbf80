#include <fmt/format.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/printed_template.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/embedded.h"
#include "compiler_core/kernels/printing/epilogue_graph.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/wgmma/wgmma_convolution.h"
#include "compiler_core/kernels/wgmma/wgmma_product.h"

namespace kiln {
namespace {

constexpr int kDepth = WgmmaMatmulSchedule::kDepth;
constexpr int kTurnThreads = 256, kTurnPitch = 66;  // turn.cuh

tl::unexpected<Error> lacks(std::string_view what) {
  return fail(Code::kUnsupported,
              fmt::format("wgmma kernels of convolutions are not written for {}", what));
}

// The product of weights and windows of each image; channels last, of all windows and weights.
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

class WgmmaConvolution {
 public:
  WgmmaConvolution(const Graph& graph, const WgmmaMatmulSchedule& schedule)
      : graph_(graph),
        schedule_(schedule),
        problem_(ConvolutionProblem::of(graph)),
        product_(product_of(problem_)),
        images_in_place_(problem_.channels_last && lies_channels_last()),
        channels_(images_in_place_ ? problem_.channels : round_up(problem_.channels, kDepth)),
        window_(problem_.window[1] * problem_.window[2]),
        height_(problem_.reach()[1]),
        width_(problem_.reach()[2]),
        rows_(problem_.channels_last ? product_.n : round_up(product_.m, schedule.bm)),
        weights_in_place_(problem_.channels_last && channels_ == problem_.channels &&
                          is_contiguous_weight()) {}

  Result<Source> print(const Target& target) const {
    const Shape space = problem_.channels_last ? Shape{product_.m, product_.n}
                                               : Shape{product_.batch[0], product_.m, product_.n};
    TRY(const EpilogueGraph epilogue, epilogue_graph(graph_, product_.product, space));
    MatmulProblem sized = product_;
    sized.product = epilogue.product;
    WgmmaOperands operands;
    if (problem_.channels_last) {
      operands.types = print_windows();
      operands.device = {"wgmma_windows.cuh"};
      operands.source = fmt::format("WindowTiles{{{}, {}}}", place(images_in_place_, x(), 0),
                                    place(weights_in_place_, w(), image_bytes()));
    } else {
      operands.types = print_operands();
      operands.device = {"wgmma_gather.cuh"};
      operands.source = fmt::format("GatheredTiles{{workspace + {}L, workspace}}", image_bytes());
    }
    operands.steps = ceil_div(window_ * channels_, int64_t{kDepth});
    operands.copying_registers = problem_.channels_last ? 80 : 56;
    Source source = WgmmaProduct(graph_, epilogue.graph, schedule_, sized, target).print(operands);
    if (const int64_t blocks = image_tiles() + border_blocks() + weight_blocks(); blocks > 0) {
      source.text += print_turn();
      source.recipe.phases.insert(source.recipe.phases.begin(),
                                  {"turn", blocks, kTurnThreads, 1, kDepth * kTurnPitch * 2});
      source.recipe.workspace_bytes =
          image_bytes() + (weights_in_place_ ? 0 : rows_ * window_ * channels_ * 2);
    }
    return source;
  }

  // Bytes of an image and of a line of weights, as they are laid out, and the number of lines.
  int64_t plane_bytes() const { return height_ * width_ * channels_ * 2; }
  int64_t row_bytes() const { return window_ * channels_ * 2; }
  int64_t row_count() const { return rows_; }

 private:
  const MatmulOperand& x() const { return problem_.product.b; }
  const MatmulOperand& w() const { return problem_.product.a; }
  int64_t images() const { return problem_.product.batch[0]; }
  int64_t image_bytes() const { return images_in_place_ ? 0 : images() * plane_bytes(); }

  // Whether windows can be gathered from where they are: 16 bytes of channels at a time.
  bool lies_channels_last() const {
    const ConvolutionProblem& p = problem_;
    const auto is_unit = [](int64_t stride) { return stride > 0 && stride % 8 == 0; };
    const int64_t bytes = 2 * (images() * x().batch_strides[0] + p.in[1] * p.x_at[1]);
    return p.x_channel == 1 && p.channels % 8 == 0 && x().offset % 8 == 0 && is_unit(p.x_at[1]) &&
           is_unit(p.x_at[2]) && is_unit(x().batch_strides[0]) && bytes < int64_t{1} << 31;
  }
  // A line after another, each its windows' elements, each their channels.
  bool is_contiguous_weight() const {
    const ConvolutionProblem& p = problem_;
    return p.w_channel == 1 && w().offset % 8 == 0 &&
           (p.window[2] == 1 || p.w_at[2] == p.channels) &&
           (p.window[1] == 1 || p.w_at[1] == p.channels * p.window[2]) &&
           w().row_stride == window_ * p.channels;
  }
  std::string place(bool in_place, const MatmulOperand& operand, int64_t offset) const {
    return in_place ? fmt::format("reinterpret_cast<const char*>(in{} + {}L)", operand.input,
                                  operand.offset)
                    : fmt::format("workspace + {}L", offset);
  }

  // Positions of an image side by side that one load takes; 0: they lie otherwise.
  int64_t vector() const {
    const ConvolutionProblem& p = problem_;
    if (p.x_at[2] != 1 || p.x_at[1] != p.in[2] || reached_height() <= 0 || reached_width() <= 0)
      return 0;
    for (const int64_t count : {8, 4, 2})
      if (p.in[1] * p.in[2] % count == 0 && p.x_channel % count == 0 &&
          p.product.b.offset % count == 0 && p.product.b.batch_strides[0] % count == 0)
        return count;
    return 0;
  }
  // Windows reach so much of an image.
  int64_t reached_height() const { return std::min(problem_.in[1], height_ - problem_.low[1]); }
  int64_t reached_width() const { return std::min(problem_.in[2], width_ - problem_.low[2]); }
  int64_t image_tiles() const {
    if (images_in_place_) return 0;
    const int64_t turned = vector() > 0 ? problem_.in[1] * problem_.in[2] : height_ * width_;
    return images() * ceil_div(turned, int64_t{64}) * (channels_ / kDepth);
  }
  int64_t border_blocks() const {
    if (vector() == 0 || images_in_place_) return 0;
    const int64_t border = height_ * width_ - reached_height() * reached_width();
    return ceil_div(images() * border * (channels_ / 8), int64_t{kTurnThreads});
  }
  int64_t weight_blocks() const {
    if (weights_in_place_) return 0;
    if (weight_parts() > 0) return ceil_div(rows_ * (channels_ / kDepth), weight_parts());
    return ceil_div(rows_ * window_ * channels_ / 8, int64_t{kTurnThreads});
  }
  // Of 64 channels of a line of weights, as many as a block's threads turn at a time where all that
  // a line has lies side by side, channel by channel; 0: it lies otherwise.
  int64_t weight_parts() const {
    const ConvolutionProblem& p = problem_;
    const bool lies_so = window_ > 1 && channels_ % kDepth == 0 && p.w_channel == window_ &&
                         p.w_at[2] == 1 && (p.window[1] == 1 || p.w_at[1] == p.window[2]) &&
                         w().row_stride % 8 == 0 && w().offset % 8 == 0 &&
                         p.channels * window_ % 8 == 0;
    if (!lies_so || window_ * kDepth > kDepth * kTurnPitch) return 0;
    return std::max<int64_t>(1, kTurnThreads / (window_ * 8));
  }

  std::string print_operands() const {
    const int64_t parts = channels_ / kDepth;
    return fmt::format(
        "struct A {{\n  static constexpr bool depth_inner = true;\n"
        "  static constexpr int pitch = {};\n"
        "  KILN_INLINE int step(int step) {{ return step * 128; }}\n}};\n"
        "struct B {{\n  static constexpr bool depth_inner = true;\n"
        "  static constexpr long image = {};\n"
        "  KILN_INLINE int line(int line) {{ return (line / {} * {} + line % {} * {}) * {}; }}\n"
        "  KILN_INLINE int step(int step) {{\n"
        "    const int place = step / {};\n"
        "    return (place / {} * {} + place % {} * {}) * {} + step % {} * 128;\n  }}\n}};\n",
        row_bytes(), plane_bytes(), problem_.out[2], problem_.stride[1] * width_, problem_.out[2],
        problem_.stride[2], channels_ * 2, parts, problem_.window[2], problem_.dilation[1] * width_,
        problem_.window[2], problem_.dilation[2], channels_ * 2, parts);
  }

  // Lines of the first operand are windows of all images, of the second weights.
  std::string print_windows() const {
    const ConvolutionProblem& p = problem_;
    const bool turned = !images_in_place_;
    const int64_t column = turned ? channels_ : p.x_at[2];
    const int64_t row = turned ? width_ * channels_ : p.x_at[1];
    const int64_t image = turned ? height_ * width_ * channels_ : x().batch_strides[0];
    return fmt::format(
        "struct A {{\n  static constexpr bool depth_inner = true;\n"
        "  static constexpr int positions = {}, positions_across = {};\n"
        "  static constexpr int image = {}, row = {}, column = {}, pieces = {}, depth = {};\n"
        "  static constexpr int height = {}, width = {}, above = {}, before = {};\n"
        "  static constexpr int stride_height = {}, stride_width = {};\n"
        "  static constexpr int window_width = {}, dilation_height = {}, dilation_width = "
        "{};\n}};\n"
        "struct B {{\n  static constexpr bool depth_inner = true;\n"
        "  static constexpr int pitch = {};\n}};\n",
        p.out[1] * p.out[2], p.out[2], image * 2, row * 2, column * 2, channels_ / 8,
        window_ * channels_ / 8, turned ? height_ : p.in[1], turned ? width_ : p.in[2],
        turned ? 0 : p.low[1], turned ? 0 : p.low[2], p.stride[1], p.stride[2], p.window[2],
        p.dilation[1], p.dilation[2], row_bytes());
  }

  std::string print_turn() const {
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
        p.channels, channels_, height_ * width_, p.x_channel, x().batch_strides[0],
        p.x_channel != 1, width_, p.low[1], width_, p.low[2], p.x_at[1], p.x_at[2], p.in[1],
        p.in[2]);
    text += fmt::format(
        "  static constexpr int vector = {}, plane = {}, row = {}, all_width = {}, images = {};\n"
        "  static constexpr int height = {}, width = {}, above = {}, before = {};\n}};\n",
        vector(), p.in[1] * p.in[2], p.in[2], width_, images(), reached_height(), reached_width(),
        p.low[1], p.low[2]);
    text += fmt::format(
        "struct W {{\n"
        "  static constexpr int rows = {}, all_rows = {}, window = {}, channels = {};\n"
        "  static constexpr int all_channels = {}, parts = {};\n"
        "  KILN_INLINE long at(int row, int place, int channel) {{\n"
        "    return row * {}L + channel * {}L + place / {} * {}L + place % {} * {}L;\n  }}\n}};\n",
        p.product.m, rows_, window_, p.channels, channels_, weight_parts(), w().row_stride,
        p.w_channel, p.window[2], p.w_at[1], p.window[2], p.w_at[2]);
    const std::string_view type = memory_type(product_.stored);
    std::string body = "  const int block = static_cast<int>(block_index());\n";
    if (image_tiles() > 0)
      body += fmt::format(
          "  if (block < {0})\n"
          "    {4}<X>(in{1} + {2}L, reinterpret_cast<{3}*>(workspace), block);\n",
          image_tiles(), x().input, x().offset, type, vector() > 0 ? "turn_planes" : "turn_images");
    if (border_blocks() > 0)
      body += fmt::format(
          "  else if (block < {1})\n"
          "    turn_border<X>(reinterpret_cast<{2}*>(workspace), block - {0});\n",
          image_tiles(), image_tiles() + border_blocks(), type);
    if (weight_blocks() > 0)
      body += fmt::format(
          "{5}    {6}<W>(in{1} + {2}L, reinterpret_cast<{3}*>(workspace + {4}L), block - "
          "{0});\n",
          image_tiles() + border_blocks(), w().input, w().offset, type, image_bytes(),
          image_tiles() > 0 ? "  else\n" : "",
          weight_parts() > 0 ? "turn_weight_lines" : "turn_weights");
    return text + std::string(device_text("turn.cuh")) +
           cuda_kernel("turn", graph_, kTurnThreads, 1, body);
  }

  const Graph& graph_;
  const WgmmaMatmulSchedule schedule_;
  const ConvolutionProblem problem_;
  const MatmulProblem product_;
  const bool images_in_place_;                               // they are laid out so already
  const int64_t channels_, window_, height_, width_, rows_;  // as they are laid out
  const bool weights_in_place_;
};

bool fits(const WgmmaMatmulSchedule& schedule, const Graph& graph, const MatmulProblem& product) {
  return fits_blocks(schedule, product, ends_in_boxes(graph, product.n));
}

}  // namespace

Status check_wgmma_convolution(const Workload& workload) {
  const Graph& graph = workload.graph;
  if (!graph.symbols().empty()) return lacks("sizes with symbols");
  const ConvolutionProblem problem = ConvolutionProblem::of(graph);
  const MatmulProblem product = product_of(problem);
  if (!is_16_bit_float(product.stored) || product.result != DType::kF32)
    return lacks("other dtypes than fp16 and bf16, or sums of other dtypes than f32");
  if (product.batches * product.m * product.n * product.k == 0) return lacks("empty images");
  if (problem.groups != 1) return lacks("groups of channels");
  constexpr int64_t kFewChannels = 32;  // fewer are mostly zeros then
  if (!problem.channels_last && problem.channels < kFewChannels) return lacks("few channels");
  if (problem.window[0] != 1 || problem.in[0] != 1 || problem.out[0] != 1)
    return lacks("three spatial axes");
  const WgmmaConvolution kernel(graph, WgmmaMatmulSchedule{});
  constexpr int64_t kMost = int64_t{1} << 30;
  if (kernel.plane_bytes() >= kMost || kernel.row_count() * kernel.row_bytes() >= kMost)
    return lacks("images or weights of a gigabyte");
  if (problem.channels_last && product.m * product.n >= int64_t{1} << 31)
    return lacks("results of so many elements");
  return {};
}

std::vector<Schedule> wgmma_convolution_candidates(const Workload& workload, const Target& target) {
  const ConvolutionProblem problem = ConvolutionProblem::of(workload.graph);
  const MatmulProblem product = product_of(problem);
  std::optional<double> bytes;
  if (problem.channels_last)
    bytes = 2 * static_cast<double>(problem.product.batch[0] * problem.channels * problem.in[1] *
                                        problem.in[2] +
                                    product.n * product.k);
  return ranked_schedules<WgmmaConvolutionSchedule>(
      product, target, [&](const auto& tried) { return fits(tried, workload.graph, product); },
      bytes);
}

Result<Source> print_wgmma_convolution(const Graph& graph, const WgmmaConvolutionSchedule& schedule,
                                       const Target& target) {
  if (!fits(schedule, graph, product_of(ConvolutionProblem::of(graph))))
    return fail(Code::kInvalidArgument,
                "the operands do not allow " + to_schedule(schedule).to_string());
  return WgmmaConvolution(graph, schedule).print(target);
}

namespace {

// tests/gpu/LOG.md: two to four times as fast as cuda.convolution, where there are many tiles.
double wgmma_convolution_efficiency(const Workload& workload) {
  constexpr int64_t kManyPositions = 4096;
  const MatmulProblem product = product_of(ConvolutionProblem::of(workload.graph));
  return product.batches * product.n >= kManyPositions ? 0.8 : 0.5;
}

}  // namespace

const KernelTemplate& wgmma_convolution() {
  static const PrintedTemplate<WgmmaConvolutionSchedule> made({
      .version = 7,
      .backend = Backend::kCuda,
      .family = Family::kConvolution,
      .isa = "sm_90a",
      .check = check_wgmma_convolution,
      .candidates = wgmma_convolution_candidates,
      .print_for = print_wgmma_convolution,
      .expected_efficiency = wgmma_convolution_efficiency,
  });
  return made;
}

}  // namespace kiln
