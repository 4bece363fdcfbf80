#include <fmt/format.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/printed_template.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/device_text.h"
#include "compiler_core/kernels/printing/epilogue_graph.h"
#include "compiler_core/kernels/printing/size.h"
#include "compiler_core/kernels/wgmma/convolution_layout.h"
#include "compiler_core/kernels/wgmma/wgmma_convolution.h"
#include "compiler_core/kernels/wgmma/wgmma_product.h"
#include "compiler_core/kernels/wgmma/wgmma_text.h"

namespace kiln {
namespace {

constexpr int kDepth = WgmmaMatmulSchedule::kDepth;

tl::unexpected<Error> convolution_lacks(std::string_view what) {
  return fail(Code::kUnsupported,
              fmt::format("wgmma kernels of convolutions are not written for {}", what));
}

class WgmmaConvolution {
 public:
  WgmmaConvolution(const Graph& graph, const WgmmaConvolutionSchedule& schedule)
      : graph_(graph),
        schedule_(schedule),
        layout_(graph, schedule),
        problem_(layout_.problem()),
        product_(layout_.product()) {}

  Result<Source> print(const Target& target) const {
    const ProductSizes sizes = layout_.product_sizes();
    const Shape space = problem_.channels_last ? Shape{sizes.rows, product_.n}
                                               : Shape{problem_.images, product_.m, product_.n};
    TRY(const EpilogueGraph epilogue, epilogue_graph(graph_, product_.product, space));
    MatmulProblem sized = product_;
    sized.product = epilogue.product;
    const bool im2col = schedule_.im2col == 1;
    WgmmaOperands operands = im2col                   ? im2col_operands()
                             : problem_.channels_last ? window_operands()
                                                      : gathered_operands();
    operands.steps = layout_.steps();
    const int64_t tiles = ceil_div(product_.m, schedule_.bm) * ceil_div(product_.n, schedule_.bn);
    const Dim begin = layout_.image_bytes() + layout_.weight_bytes();
    int64_t counters = 0, shared_bytes = 0;
    if (schedule_.shared == 1) {
      operands.sharing_blocks = std::min<int64_t>(cuda_limits(target).sms, tiles * operands.steps);
      operands.meeting = fmt::format("workspace + {}", long_text(begin));
      counters = tiles * schedule_.groups * 4;
      shared_bytes = round_up(counters * 4, int64_t{256}) +
                     (tiles + operands.sharing_blocks - 1) * schedule_.bm * schedule_.bn * 4;
    }
    Source source =
        WgmmaProduct(graph_, epilogue.graph, schedule_, sized, sizes, target).print(operands);
    layout_.add_turn(source, counters, begin);
    source.recipe.workspace_bytes = begin + Dim(shared_bytes);
    return source;
  }

 private:
  // The copy engine brings both.
  WgmmaOperands im2col_operands() const {
    const ConvolutionProblem& p = problem_;
    WgmmaOperands operands;
    operands.types = std::string(device_text("window_copies.cuh"));
    operands.types += fmt::format(
        "struct A {{\n  static constexpr bool depth_inner = true;\n"
        "  static constexpr int chunks = {}, positions = {}, positions_across = {};\n"
        "  static constexpr int above = {}, before = {}, stride_height = {}, stride_width = {};\n"
        "  static constexpr int window_width = {}, dilation_height = {}, dilation_width = "
        "{};\n}};\n",
        layout_.chunks(), p.out[1] * p.out[2], p.out[2], p.low[1], p.low[2], p.stride[1],
        p.stride[2], p.window[2], p.dilation[1], p.dilation[2]);
    operands.types += print_weights();
    if (schedule_.shared == 1) operands.device.emplace_back("wgmma_shared_tiles.cuh");
    operands.device.emplace_back("wgmma_im2col.cuh");
    const bool follows_turn = layout_.has_turn(schedule_.shared);  // sums that meet need counters
    // What it reads of images the kernel in front of the turn has written, which has ended when the
    // product begins.
    operands.waits = follows_turn;
    const int weights = layout_.w().input;
    if (!follows_turn) operands.early_input = weights;
    operands.source =
        fmt::format("Im2colTiles<{}, {}>{{&images_map, {}, sizes, {}}}",
                    schedule_.shared == 1 ? "SharedTiles" : "WholeTiles", !follows_turn,
                    layout_.weights_in_place() ? "&weights_map" : layout_.weights_text(),
                    follows_turn ? "false" : fmt::format("ready{} != 0", weights));
    operands.maps = {{"images", map_of_images()}};
    if (layout_.weights_in_place()) operands.maps.emplace_back("weights", map_of_weights());
    return operands;
  }

  // As they lie, or as the launch before has laid them out: a tile's step side by side.
  std::string print_weights() const {
    constexpr std::string_view kSignature =
        "  static KILN_MEMBER void bring(char* to, Source source, char* barrier, int line, int "
        "step) "
        "{";
    if (!layout_.weights_in_place())
      return fmt::format(
          "struct B {{\n  static constexpr bool depth_inner = true, follows = true;\n"
          "  using Source = const char*;\n{0}\n"
          "    copy_bytes(to, source + (line / {1} * {2}L + step) * {3}, {3}, barrier);\n  "
          "}}\n}};\n",
          kSignature, schedule_.bn, layout_.steps(), schedule_.bn * 128);
    return fmt::format(
        "struct B {{\n  static constexpr bool depth_inner = true, follows = false;\n"
        "  using Source = const CUtensorMap*;\n{0}\n"
        "    const int element = step / {1};\n"
        "    const int at[4] = {{step % {1} * 64, element % {2}, element / {2}, line}};\n"
        "    copy_box(to, source, barrier, at);\n  }}\n}};\n",
        kSignature, layout_.chunks(), problem_.window[2]);
  }

  // Axes of one element may have any stride, also one that no map has.
  TensorMap map_of(const MatmulOperand& operand, const std::vector<Dim>& sizes,
                   const std::vector<int64_t>& strides) const {
    TensorMap map;
    map.buffer = operand.input;
    map.offset = operand.offset * 2;
    map.dtype = product_.stored;
    map.sizes.assign(sizes.begin(), sizes.end());
    for (size_t axis = 0; axis < strides.size(); ++axis)
      map.strides.emplace_back(
          (sizes[axis + 1].is(1) ? round_up(sizes[0].constant(), int64_t{8}) : strides[axis]) * 2);
    return map;
  }

  TensorMap map_of_images() const {
    const ConvolutionProblem& p = problem_;
    TensorMap map = map_of(layout_.x(), {p.channels, p.in[2], p.in[1], layout_.images()},
                           {p.x_at[2], p.x_at[1], layout_.x().batch_strides[0]});
    TensorMap::Im2col windows;
    windows.channels = kDepth;
    windows.pixels = schedule_.bm;
    for (const size_t axis : {2, 1}) {
      const int64_t last = (p.out[axis] - 1) * p.stride[axis] - p.low[axis];
      windows.lower.push_back(static_cast<int>(-p.low[axis]));
      windows.upper.push_back(static_cast<int>(last - (p.in[axis] - 1)));
    }
    map.im2col = windows;
    map.element_strides = {1, static_cast<int>(p.stride[2]), static_cast<int>(p.stride[1]), 1};
    map.swizzle = WgmmaMatmulSchedule::kStepBytes;
    map.l2_promotion = 256;
    return map;
  }

  TensorMap map_of_weights() const {
    const ConvolutionProblem& p = problem_;
    TensorMap map = map_of(layout_.w(), {p.channels, p.window[2], p.window[1], product_.n},
                           {p.w_at[2], p.w_at[1], layout_.w().row_stride});
    map.box = {kDepth, 1, 1, schedule_.bn};
    finish_map(map);
    return map;
  }

  // Lines of the first operand are windows of all images, of the second weights.
  WgmmaOperands window_operands() const {
    const ConvolutionProblem& p = problem_;
    const bool turned = !layout_.images_in_place();
    const int64_t channels = layout_.channels(), width = layout_.width();
    const int64_t column = turned ? channels : p.x_at[2];
    const int64_t row = turned ? width * channels : p.x_at[1];
    const int64_t image =
        turned ? layout_.height() * width * channels : layout_.x().batch_strides[0];
    WgmmaOperands operands;
    operands.types = fmt::format(
        "struct A {{\n  static constexpr bool depth_inner = true;\n"
        "  static constexpr int positions = {}, positions_across = {};\n"
        "  static constexpr int image = {}, row = {}, column = {}, pieces = {}, depth = {};\n"
        "  static constexpr int height = {}, width = {}, above = {}, before = {};\n"
        "  static constexpr int stride_height = {}, stride_width = {};\n"
        "  static constexpr int window_width = {}, dilation_height = {}, dilation_width = "
        "{};\n}};\n"
        "struct B {{\n  static constexpr bool depth_inner = true;\n"
        "  static constexpr int pitch = {};\n}};\n",
        p.out[1] * p.out[2], p.out[2], image * 2, row * 2, column * 2, channels / 8,
        layout_.window() * channels / 8, turned ? layout_.height() : p.in[1],
        turned ? width : p.in[2], turned ? 0 : p.low[1], turned ? 0 : p.low[2], p.stride[1],
        p.stride[2], p.window[2], p.dilation[1], p.dilation[2], layout_.row_bytes());
    operands.device = {"wgmma_windows.cuh"};
    operands.source =
        fmt::format("WindowTiles{{{}, {}, sizes}}", layout_.images_text(), layout_.weights_text());
    operands.copying_registers = 80;
    return operands;
  }

  WgmmaOperands gathered_operands() const {
    const ConvolutionProblem& p = problem_;
    const int64_t channels = layout_.channels(), width = layout_.width(), parts = channels / kDepth;
    WgmmaOperands operands;
    operands.types = fmt::format(
        "struct A {{\n  static constexpr bool depth_inner = true;\n"
        "  static constexpr int pitch = {};\n"
        "  KILN_INLINE int step(int step) {{ return step * 128; }}\n}};\n"
        "struct B {{\n  static constexpr bool depth_inner = true;\n"
        "  static constexpr long image = {};\n"
        "  KILN_INLINE int line(int line) {{ return (line / {} * {} + line % {} * {}) * {}; }}\n"
        "  KILN_INLINE int step(int step) {{\n"
        "    const int place = step / {};\n"
        "    return (place / {} * {} + place % {} * {}) * {} + step % {} * 128;\n  }}\n}};\n",
        layout_.row_bytes(), layout_.plane_bytes(), p.out[2], p.stride[1] * width, p.out[2],
        p.stride[2], channels * 2, parts, p.window[2], p.dilation[1] * width, p.window[2],
        p.dilation[2], channels * 2, parts);
    operands.device = {"wgmma_gather.cuh"};
    operands.source = fmt::format("GatheredTiles{{{}, {}, sizes}}", layout_.weights_text(),
                                  layout_.images_text());
    operands.copying_registers = 56;
    return operands;
  }

  const Graph& graph_;
  const WgmmaConvolutionSchedule schedule_;
  const ConvolutionLayout layout_;
  const ConvolutionProblem& problem_;
  const MatmulProblem& product_;
};

}  // namespace

bool fits_convolution(const WgmmaConvolutionSchedule& schedule, const Graph& graph) {
  constexpr int64_t kMostSteps = int64_t{1} << 30;  // of all tiles, counted
  const ConvolutionProblem problem = ConvolutionProblem::of(graph);
  const MatmulProblem product = product_of(problem);
  if (!schedule.go_together() || (schedule.im2col == 1 && !has_im2col(problem))) return false;
  const int64_t tiles = ceil_div(product.m, schedule.bm) * ceil_div(product.n, schedule.bn);
  if (schedule.shared == 1 &&
      tiles * problem.window[1] * problem.window[2] * ceil_div(problem.channels, kDepth) >=
          kMostSteps)
    return false;
  return fits_blocks(schedule, product, ends_in_boxes(graph, product.n));
}

Status check_wgmma_convolution(const Workload& workload) {
  const Graph& graph = workload.graph;
  const ConvolutionProblem problem = ConvolutionProblem::of(graph);
  if (!problem.sized.is_constant())
    return convolution_lacks("other symbols than in the number of images");
  const MatmulProblem product = product_of(problem);
  if (!is_16_bit_float(product.stored) || product.result != DType::kF32)
    return convolution_lacks("other dtypes than fp16 and bf16, or sums of other dtypes than f32");
  if (product.batches * product.m * product.n * product.k == 0)
    return convolution_lacks("empty images");
  if (problem.groups != 1) return convolution_lacks("groups of channels");
  constexpr int64_t kFewChannels = 32;  // fewer are mostly zeros then
  if (!problem.channels_last && problem.channels < kFewChannels)
    return convolution_lacks("few channels");
  if (problem.window[0] != 1 || problem.in[0] != 1 || problem.out[0] != 1)
    return convolution_lacks("three spatial axes");
  const ConvolutionLayout layout(graph, WgmmaConvolutionSchedule{});
  constexpr int64_t kMost = int64_t{1} << 30;
  if (layout.plane_bytes() >= kMost || layout.row_count() * layout.row_bytes() >= kMost)
    return convolution_lacks("images or weights of a gigabyte");
  if (graph.symbols().empty() && problem.channels_last && product.m * product.n >= int64_t{1} << 31)
    return convolution_lacks("results of so many elements");
  return {};
}

Result<Source> print_wgmma_convolution(const Graph& graph, const WgmmaConvolutionSchedule& schedule,
                                       const Target& target) {
  if (schedule.shared == 1 && !graph.symbols().empty())
    return convolution_lacks("tiles that blocks share, of sizes with symbols");
  if (!fits_convolution(schedule, graph))
    return fail(Code::kInvalidArgument,
                "the operands do not allow " + to_schedule(schedule).to_string());
  return WgmmaConvolution(graph, schedule).print(target);
}

namespace {

// The steps of how many tiles are divided among blocks is counted when a kernel is printed.
std::optional<WgmmaConvolutionSchedule> adapt_wgmma_convolution(const Graph&,
                                                                WgmmaConvolutionSchedule schedule) {
  schedule.shared = 0;
  return schedule;
}

// tests/gpu/LOG.md: two to four times as fast as cuda.convolution, where there are many tiles.
double wgmma_convolution_efficiency(const Workload& workload) {
  constexpr int64_t kManyPositions = 4096;
  const MatmulProblem product = product_of(ConvolutionProblem::of(workload.graph));
  return product.batches * product.n >= kManyPositions ? 0.8 : 0.5;
}

}  // namespace

const KernelTemplate& wgmma_convolution() {
  static const PrintedTemplate<WgmmaConvolutionSchedule> made({
      .version = 22,
      .backend = Backend::kCuda,
      .family = Family::kConvolution,
      .isa = "sm_90a",
      .check = check_wgmma_convolution,
      .candidates = wgmma_convolution_candidates,
      .print_for = print_wgmma_convolution,
      .adapt = adapt_wgmma_convolution,
      .expected_efficiency = wgmma_convolution_efficiency,
  });
  return made;
}

}  // namespace kiln
