#include "compiler_core/kernels/convolution/cuda_depthwise.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/convolution/convolution_problem.h"
#include "compiler_core/kernels/matmul/cuda_product.h"
#include "compiler_core/kernels/printed_template.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/device_text.h"
#include "compiler_core/kernels/printing/epilogue_graph.h"
#include "compiler_core/kernels/printing/expression.h"

namespace kiln {
namespace {

tl::unexpected<Error> lacks(std::string_view what) {
  return fail(Code::kUnsupported,
              fmt::format("kernels of depthwise convolutions are not written for {}", what));
}

// How x is read: elements in one load, and whether they are of neighbouring channels.
struct Vector {
  int64_t elements = 1;
  bool channels_inner = false;
};
Vector vector_of(const ConvolutionProblem& p) {
  const MatmulOperand& x = p.product.b;
  const bool channels_inner = p.x_channel == 1 && p.groups > 1;
  for (int64_t count = 16 / size_of(p.product.stored); count > 1; count /= 2) {
    const int64_t along = channels_inner ? p.groups : p.in[2];
    const int64_t across = channels_inner ? p.x_at[2] : p.x_channel;
    const bool is_inner = channels_inner || p.x_at[2] == 1;
    if (is_inner && along % count == 0 && across % count == 0 && p.x_at[1] % count == 0 &&
        x.offset % count == 0 && x.batch_strides[0] % count == 0)
      return {count, channels_inner};
  }
  return {1, channels_inner};
}

// A schedule's tiles of a problem, in numbers.
class DepthwiseTiles {
 public:
  DepthwiseTiles(const ConvolutionProblem& problem, const CudaDepthwiseSchedule& schedule)
      : problem_(problem), schedule_(schedule) {
    const Vector vector = vector_of(problem);
    in_fours_ = !vector.channels_inner && vector.elements % 4 == 0;
  }

  int64_t groups() const { return ceil_div(schedule_.rows, schedule_.group); }
  int64_t strips() const { return ceil_div(problem_.out[2], int64_t{schedule_.strip}); }
  int64_t row_tiles() const { return ceil_div(problem_.out[1], int64_t{schedule_.rows}); }
  int64_t channel_tiles() const { return ceil_div(problem_.groups, int64_t{schedule_.channels}); }
  // The layout of x in shared memory, in floats: before a row's first, a row with its zeros, a channel.
  // Where x comes in fours they are stored as such; rows begin in different banks then.
  int64_t lead() const {
    return in_fours_ ? round_up(problem_.low[2], int64_t{4}) : problem_.low[2];
  }
  int64_t held_rows() const { return reach(groups() * schedule_.group, 1); }
  int64_t pitch() const {
    return spread(lead() +
                  std::max(problem_.in[2], reach(strips() * schedule_.strip, 2) - problem_.low[2]));
  }
  int64_t plane() const { return spread(held_rows() * pitch()); }
  int64_t shared_bytes() const {
    const int64_t sums = schedule_.channels * schedule_.rows * problem_.out[2];
    const int64_t weights = schedule_.channels * problem_.window[1] * problem_.window[2];
    return 4 * (round_up(sums, int64_t{4}) + round_up(schedule_.channels * plane(), int64_t{4}) +
                weights);
  }

 private:
  int64_t reach(int64_t count, size_t axis) const {
    return (count - 1) * problem_.stride[axis] +
           (problem_.window[axis] - 1) * problem_.dilation[axis] + 1;
  }
  // At least so many: an odd number, of fours where x comes in fours.
  int64_t spread(int64_t floats) const {
    const int64_t unit = in_fours_ ? 4 : 1;
    return (ceil_div(floats, unit) | 1) * unit;
  }

  const ConvolutionProblem& problem_;
  const CudaDepthwiseSchedule& schedule_;
  bool in_fours_ = false;
};

bool fits(const CudaDepthwiseSchedule& schedule, const ConvolutionProblem& problem,
          const Target& target) {
  const Vector vector = vector_of(problem);
  constexpr int64_t kMostSteps = 2560;  // of a thread's text
  return (!vector.channels_inner || schedule.channels % vector.elements == 0) &&
         schedule.group * schedule.strip * problem.window[1] * problem.window[2] <= kMostSteps &&
         DepthwiseTiles(problem, schedule).shared_bytes() <=
             cuda_limits(target).block_shared_bytes &&
         schedule.threads <= cuda_limits(target).max_block_threads;
}

std::string print_numbers(const ConvolutionProblem& p, const CudaDepthwiseSchedule& schedule) {
  const DepthwiseTiles tiles(p, schedule);
  const Vector vector = vector_of(p);
  return fmt::format(
      "struct Depthwise {{\n"
      "  static constexpr int channels = {}, rows = {}, row_tiles = {}, channel_tiles = {};\n"
      "  static constexpr int strip = {}, group = {}, threads = {};\n"
      "  static constexpr int all_channels = {}, in_height = {}, in_width = {}, height = {};\n"
      "  static constexpr int width = {}, window_height = {}, window_width = {};\n"
      "  static constexpr int stride_height = {}, stride_width = {};\n"
      "  static constexpr int dilation_height = {}, dilation_width = {};\n"
      "  static constexpr int above = {}, before = {}, vector = {};\n"
      "  static constexpr bool channels_inner = {};\n"
      "  static constexpr long x_image = {}, x_channel = {}, x_row = {}, x_column = {};\n"
      "  static constexpr long w_channel = {}, w_row = {}, w_column = {};\n"
      "  static constexpr int held_rows = {}, pitch = {}, plane = {}, lead = {};\n}};\n",
      schedule.channels, schedule.rows, tiles.row_tiles(), tiles.channel_tiles(), schedule.strip,
      schedule.group, schedule.threads, p.groups, p.in[1], p.in[2], p.out[1], p.out[2], p.window[1],
      p.window[2], p.stride[1], p.stride[2], p.dilation[1], p.dilation[2], p.low[1], p.low[2],
      vector.elements, vector.channels_inner, p.product.b.batch_strides[0], p.x_channel, p.x_at[1],
      p.x_at[2], p.product.a.row_stride, p.w_at[1], p.w_at[2], tiles.held_rows(), tiles.pitch(),
      tiles.plane(), tiles.lead());
}

std::string print_body(const EpilogueGraph& epilogue, const ConvolutionProblem& p, int lanes) {
  const auto scalar = [](const char* name, Level level, const Dim& end) {
    return Index(LoopVar{name, LoopVar::Kind::kScalar, level, 0, end});
  };
  const Index image = scalar("image", Level::kKernel, p.images);
  const Index channel = scalar("channel", Level::kOuter, p.groups);
  const Index column =
      LoopVar{"column", LoopVar::Kind::kVector, Level::kInner, 0, p.product.n, lanes};
  std::vector<Index> at = {image, channel, column};
  if (p.channels_last) at = {image * Dim(p.product.n) + column, channel};
  const EpilogueText text =
      product_epilogue(epilogue.graph, epilogue.product, p.product.result, at, "");
  return fmt::format(
      "  const DepthwiseTile tile(static_cast<int>(block_index()));\n"
      "  [[maybe_unused]] const index_t image = tile.image;\n{}"
      "  const auto finish = [&]([[maybe_unused]] index_t channel, index_t column,\n"
      "                          const Vec<float>& sums) {{\n{}  }};\n"
      "  convolve(in{} + {}L, in{} + {}L, tile, finish);\n",
      text.once, text.vector, p.product.b.input, p.product.b.offset, p.product.a.input,
      p.product.a.offset);
}

}  // namespace

Status check_cuda_depthwise(const Workload& workload) {
  const ConvolutionProblem p = ConvolutionProblem::of(workload.graph);
  if (!p.sized.is_constant()) return lacks("other symbols than in the number of images");
  if (p.channels_last && p.x_channel == 1) return lacks("images channels last");
  if (p.channels != 1 || p.product.m != 1) return lacks("groups of several channels or results");
  if (p.product.result != DType::kF32 ||
      (p.product.stored != DType::kF32 && !is_16_bit_float(p.product.stored)))
    return lacks("other dtypes than fp16, bf16 and f32");
  if (p.window[0] != 1 || p.in[0] != 1 || p.out[0] != 1) return lacks("three spatial axes");
  constexpr int64_t kMostWindow = 121, kMostWidth = 4096;
  if (p.window[1] * p.window[2] > kMostWindow) return lacks("windows of so many elements");
  if (p.in[2] > kMostWidth || p.out[2] > kMostWidth) return lacks("rows of so many elements");
  return {};
}

std::vector<Schedule> cuda_depthwise_candidates(const Workload& workload, const Target& target) {
  const ConvolutionProblem p = ConvolutionProblem::of(workload.graph);
  const int64_t least =
      vector_of(p).channels_inner ? std::max<int64_t>(vector_of(p).elements, 16) : 1;
  constexpr int kStrip = 7, kSharedBytes = 56 << 10;  // four blocks an SM
  std::vector<Schedule> space;
  for (const int threads : {128, 256}) {
    for (const int group : {4, 2, 1}) {
      CudaDepthwiseSchedule schedule;
      schedule.threads = threads;
      schedule.strip = static_cast<int>(std::min<int64_t>(kStrip, p.out[2]));
      schedule.group = static_cast<int>(std::min<int64_t>(group, p.out[1]));
      const int64_t strips = ceil_div(p.out[2], int64_t{schedule.strip});
      const auto items = [&] {
        return schedule.channels * strips * ceil_div(schedule.rows, schedule.group);
      };
      // As many rows as there are threads for, then channels.
      schedule.channels =
          static_cast<int>(std::min<int64_t>(least, round_up(p.groups, vector_of(p).elements)));
      const int64_t groups = std::clamp<int64_t>(threads / (schedule.channels * strips), 1,
                                                 ceil_div(p.out[1], int64_t{schedule.group}));
      const int64_t tiles = ceil_div(p.out[1], groups * schedule.group);
      schedule.rows = static_cast<int>(
          std::min(p.out[1], round_up(ceil_div(p.out[1], tiles), int64_t{schedule.group})));
      const auto has_room = [&] {
        return DepthwiseTiles(p, schedule).shared_bytes() <= kSharedBytes;
      };
      while (!has_room() && schedule.rows > schedule.group)
        schedule.rows = static_cast<int>(round_up(schedule.rows / 2, schedule.group));
      const int one = schedule.channels;
      while (items() + items() * one / schedule.channels <= threads &&
             schedule.channels + one <= std::min<int64_t>(p.groups, 256)) {
        schedule.channels += one;
        if (has_room()) continue;
        schedule.channels -= one;
        break;
      }
      if (!fits(schedule, p, target)) continue;
      const Schedule made = to_schedule(schedule);
      if (std::ranges::find(space, made) == space.end()) space.push_back(made);
    }
  }
  return space;
}

Result<Source> print_cuda_depthwise(const Graph& graph, const CudaDepthwiseSchedule& schedule,
                                    const Target& target) {
  const ConvolutionProblem p = ConvolutionProblem::of(graph);
  if (!fits(schedule, p, target))
    return fail(Code::kInvalidArgument,
                "the operands do not allow " + to_schedule(schedule).to_string());
  Shape space = {p.images, p.groups, p.product.n};
  if (p.channels_last) space = {p.images * Dim(p.product.n), p.groups};
  TRY(const EpilogueGraph epilogue, epilogue_graph(graph, p.product.product, space));
  // A block's results of a channel come in whole vectors, as those of an image do; one by one where
  // channels lie between them.
  int lanes = p.channels_last ? 1 : product_lanes(graph, p.product.n);
  while (schedule.rows * p.out[2] % lanes != 0) lanes /= 2;
  const DepthwiseTiles tiles(p, schedule);
  Source source;
  source.recipe = argument_recipe(graph);
  source.text =
      cuda_preamble(graph, lanes) + print_numbers(p, schedule) +
      std::string(device_text("depthwise.cuh")) +
      cuda_kernel("convolve_channels", graph, schedule.threads, 1, print_body(epilogue, p, lanes));
  source.recipe.phases.push_back({"convolve_channels",
                                  Grid(p.images * (tiles.channel_tiles() * tiles.row_tiles())),
                                  schedule.threads, 1, static_cast<int>(tiles.shared_bytes())});
  return source;
}

const KernelTemplate& cuda_depthwise() {
  static const PrintedTemplate<CudaDepthwiseSchedule> made({
      .version = 6,
      .backend = Backend::kCuda,
      .family = Family::kConvolution,
      .check = check_cuda_depthwise,
      .candidates = cuda_depthwise_candidates,
      .print_for = print_cuda_depthwise,
      .expected_efficiency = [](const Workload&) { return 0.6; },
  });
  return made;
}

}  // namespace kiln
