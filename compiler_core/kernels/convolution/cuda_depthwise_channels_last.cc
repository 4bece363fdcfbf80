// cuda.convolution.depthwise.channels_last: images that lie channels last, and results stored so.
#include <fmt/format.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/convolution/convolution_problem.h"
#include "compiler_core/kernels/convolution/cuda_depthwise.h"
#include "compiler_core/kernels/matmul/cuda_product.h"
#include "compiler_core/kernels/printed_template.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/device_text.h"
#include "compiler_core/kernels/printing/epilogue_graph.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/printing/size.h"
#include "compiler_core/plan/channels_last.h"

namespace kiln {
namespace {

// Threads of an SM, at least: with 128 registers each, or 80 where they read ahead.
constexpr int kThreadsAnSm = 512, kThreadsThatReadAhead = 768;
constexpr int kSmallWindow = 9;  // elements of a window for which a thread may read ahead

tl::unexpected<Error> channels_last_lacks(std::string_view what) {
  return fail(
      Code::kUnsupported,
      fmt::format("kernels of depthwise convolutions channels last are not written for {}", what));
}

// A schedule's tiles of a problem, in numbers.
class ChannelsLastTiles {
 public:
  ChannelsLastTiles(const ConvolutionProblem& problem,
                    const CudaDepthwiseChannelsLastSchedule& schedule)
      : problem_(problem), schedule_(schedule) {}

  int64_t channel_tiles() const { return ceil_div(problem_.groups, int64_t{schedule_.channels}); }
  // Groups of rows and strips: of a block, of an image, and of all.
  int64_t places() const { return schedule_.threads / (schedule_.channels / schedule_.lanes); }
  int64_t image_places() const {
    return ceil_div(problem_.out[1], int64_t{schedule_.group}) *
           ceil_div(problem_.out[2], int64_t{schedule_.strip});
  }
  Grid blocks() const {
    return Grid({GridAxis{problem_.images * image_places(), places()}, GridAxis{channel_tiles()}});
  }
  // At the measured sizes.
  int64_t measured_blocks() const {
    return ceil_div(problem_.product.batch[0] * image_places(), places()) * channel_tiles();
  }
  int64_t shared_bytes() const {
    return problem_.window[1] * problem_.window[2] * (schedule_.channels + schedule_.lanes) * 4;
  }
  // Multiplications of a thread.
  int64_t steps() const {
    return int64_t{schedule_.lanes} * schedule_.group * schedule_.strip * problem_.window[1] *
           problem_.window[2];
  }
  // Columns of x, or rows, that so many results reach.
  int64_t reach(int64_t count, size_t axis) const {
    return (count - 1) * problem_.stride[axis] +
           (problem_.window[axis] - 1) * problem_.dilation[axis] + 1;
  }

 private:
  const ConvolutionProblem& problem_;
  const CudaDepthwiseChannelsLastSchedule& schedule_;
};

bool fits_channels_last(const CudaDepthwiseChannelsLastSchedule& schedule,
                        const ConvolutionProblem& problem, const Target& target) {
  const ChannelsLastTiles tiles(problem, schedule);
  return tiles.places() > 0 && tiles.reach(schedule.strip, 2) <= kMostDepthwiseReach &&
         tiles.shared_bytes() <= cuda_limits(target).block_shared_bytes &&
         schedule.threads <= cuda_limits(target).max_block_threads &&
         schedule.threads * schedule.blocks <= cuda_limits(target).sm_threads;
}

// Elements that every vector of x begins at a multiple of: at most `lanes`.
int64_t alignment(const ConvolutionProblem& p, int64_t lanes) {
  const MatmulOperand& x = p.product.b;
  const auto is_aligned = [&] {
    return p.x_at[1] % lanes == 0 && p.x_at[2] % lanes == 0 && x.offset % lanes == 0 &&
           x.batch_strides[0] % lanes == 0;
  };
  while (!is_aligned()) lanes /= 2;
  return lanes;
}

std::string print_channels_last_numbers(const ConvolutionProblem& p,
                                        const CudaDepthwiseChannelsLastSchedule& schedule) {
  const ChannelsLastTiles tiles(p, schedule);
  return fmt::format(
      "struct Depthwise {{\n"
      "  static constexpr int channels = {}, places = {}, channel_tiles = {};\n"
      "  static constexpr int strip = {}, group = {}, threads = {};\n"
      "  static constexpr int all_channels = {}, in_height = {}, in_width = {};\n"
      "  static constexpr int height = {}, width = {}, window_height = {}, window_width = {};\n"
      "  static constexpr int stride_height = {}, stride_width = {};\n"
      "  static constexpr int dilation_height = {}, dilation_width = {};\n"
      "  static constexpr int above = {}, before = {}, x_align = {};\n"
      "  static constexpr bool ahead = {};\n"
      "  static constexpr long x_image = {}, x_row = {}, x_column = {};\n"
      "  static constexpr long w_channel = {}, w_row = {}, w_column = {};\n}};\n",
      schedule.channels, tiles.places(), tiles.channel_tiles(), schedule.strip, schedule.group,
      schedule.threads, p.groups, p.in[1], p.in[2], p.out[1], p.out[2], p.window[1], p.window[2],
      p.stride[1], p.stride[2], p.dilation[1], p.dilation[2], p.low[1], p.low[2],
      alignment(p, schedule.lanes), schedule.ahead == 1, p.product.b.batch_strides[0], p.x_at[1],
      p.x_at[2], p.product.a.row_stride, p.w_at[1], p.w_at[2]);
}

std::string print_channels_last_body(const EpilogueGraph& epilogue, const ConvolutionProblem& p,
                                     const Dim& positions, int lanes) {
  const std::vector<Index> at = {
      LoopVar{"position", LoopVar::Kind::kScalar, Level::kOuter, 0, positions},
      LoopVar{"column", LoopVar::Kind::kVector, Level::kInner, 0, p.groups, lanes}};
  const EpilogueText text =
      product_epilogue(epilogue.graph, epilogue.product, p.product.result, at, "");
  return fmt::format(
      "{}  const auto finish = [&]([[maybe_unused]] index_t position, index_t column,\n"
      "                          const Vec<float>& sums) {{\n{}  }};\n"
      "  convolve(in{} + {}L, in{} + {}L, static_cast<int>({}), finish);\n",
      text.once, text.vector, p.product.b.input, p.product.b.offset, p.product.a.input,
      p.product.a.offset, p.images);
}

Status check_channels_last(const Workload& workload) {
  const ConvolutionProblem p = ConvolutionProblem::of(workload.graph);
  if (!p.sized.is_constant())
    return channels_last_lacks("other symbols than in the number of images");
  if (!p.channels_last || p.x_channel != 1) return channels_last_lacks("images channel by channel");
  if (p.channels != 1 || p.product.m != 1)
    return channels_last_lacks("groups of several channels or results");
  return {};  // all else that is stored channels last: see may_end_channels_last()
}

// The channels of a block: few threads are idle then, and many channels lie side by side. Threads that read
// `ahead` want more of them.
int channels_of_block(int64_t channels, int threads, int lanes, bool ahead) {
  int best = 0;
  double most = 0;
  for (const int count : {128, 96, 64, 56, 48, 40, 32, 24, 16, 8}) {
    if (count > 32 * lanes) continue;
    const int vectors = count / lanes, taken = threads / vectors * vectors;
    const double busy = static_cast<double>(taken) / threads;
    const double real = static_cast<double>(channels) /
                        static_cast<double>(round_up(channels, static_cast<int64_t>(count)));
    double side_by_side = count < 16 ? 0.5 : count < 32 ? 0.9 : 1.0;
    if (ahead && count < 16 * lanes) side_by_side *= 0.9;
    if (busy * real * side_by_side > most + 1e-6) {
      most = busy * real * side_by_side;
      best = count;
    }
  }
  return best;
}

// A thread that reads ahead waits once instead of once a line, so its time counts as this part of another's.
constexpr double kReadsAhead = 0.4;

// Instructions of a thread, times how often the threads that an SM holds are replaced by others.
double cycles(const CudaDepthwiseChannelsLastSchedule& schedule, const ConvolutionProblem& p,
              const Target& target) {
  const ChannelsLastTiles tiles(p, schedule);
  const auto reads =
      static_cast<double>(tiles.reach(schedule.group, 1) * tiles.reach(schedule.strip, 2));
  const double results = (3.0 + 4.5 * schedule.lanes) * schedule.group * schedule.strip;
  const double alone =
      static_cast<double>(tiles.steps()) * 1.1 + reads * (3.0 + schedule.lanes) + results + 200;
  const double work = schedule.ahead == 1 ? kReadsAhead * alone : alone;
  const double waves = static_cast<double>(tiles.measured_blocks()) /
                       (static_cast<double>(cuda_limits(target).sms) * schedule.blocks);
  return work * std::max(1.0, waves);
}

// tests/gpu/LOG.md: of each problem the best, or one a few percent from it, is among these. Large windows
// want long strips; small ones wide reads, or few results of a thread that reads all it needs at once.
std::vector<Schedule> channels_last_candidates(const Workload& workload, const Target& target) {
  const ConvolutionProblem p = ConvolutionProblem::of(workload.graph);
  // Strips of which the last is nearly whole.
  const auto padded = [&](int64_t strip) { return round_up(p.out[2], strip); };
  const int strip = padded(7) <= padded(8) ? 7 : 8;
  struct Form {
    int lanes, group, strip;
    bool ahead = false;
  };
  // More channels a thread, more rows or longer strips gave spills, or were slower: 20 shapes on an
  // H200 (tests/gpu/LOG.md, "Tuning").
  const Form forms[] = {{2, 2, 2 * strip}, {2, 1, 2 * strip}, {2, 2, strip}, {4, 1, strip},
                        {2, 4, 2, true},   {4, 2, 1, true},   {2, 1, 1}};
  std::vector<std::pair<double, Schedule>> ranked;
  for (const Form& form : forms) {
    for (const int threads : {128, 256}) {
      if ((form.lanes > 2 || form.ahead) && threads == 128) continue;
      if (form.ahead && p.window[1] * p.window[2] > kSmallWindow) continue;
      CudaDepthwiseChannelsLastSchedule schedule;
      schedule.lanes = form.lanes;
      schedule.threads = threads;
      schedule.blocks = (form.ahead ? kThreadsThatReadAhead : kThreadsAnSm) / threads;
      schedule.ahead = form.ahead ? 1 : 0;
      schedule.channels = channels_of_block(p.groups, threads, form.lanes, form.ahead);
      schedule.strip = static_cast<int>(std::min<int64_t>(form.strip, p.out[2]));
      schedule.group = static_cast<int>(std::min<int64_t>(form.group, p.out[1]));
      if (form.strip == 1 && !form.ahead && !ranked.empty())
        continue;  // where others reach too far
      const Schedule made = to_schedule(schedule);
      const auto is_made = [&](const auto& entry) { return entry.second == made; };
      if (fits_channels_last(schedule, p, target) && std::ranges::none_of(ranked, is_made))
        ranked.emplace_back(cycles(schedule, p, target), made);
    }
  }
  std::ranges::stable_sort(ranked, {}, [](const auto& entry) { return entry.first; });
  std::vector<Schedule> space;
  for (auto& [cost, schedule] : ranked) space.push_back(std::move(schedule));
  return space;
}

Result<Source> print_channels_last(const Graph& graph,
                                   const CudaDepthwiseChannelsLastSchedule& schedule,
                                   const Target& target) {
  const ConvolutionProblem p = ConvolutionProblem::of(graph);
  if (!fits_channels_last(schedule, p, target))
    return fail(Code::kInvalidArgument,
                "the operands do not allow " + to_schedule(schedule).to_string());
  const ChannelsLastTiles tiles(p, schedule);
  const Dim positions = p.images * p.product.n;
  TRY(const EpilogueGraph epilogue,
      epilogue_graph(graph, p.product.product, {positions, p.groups}));
  Source source;
  source.recipe = argument_recipe(graph);
  source.text = cuda_preamble(graph, schedule.lanes) + print_channels_last_numbers(p, schedule) +
                std::string(device_text("depthwise_channels_last.cuh")) +
                cuda_kernel("convolve_channels", graph, schedule.threads, schedule.blocks,
                            print_channels_last_body(epilogue, p, positions, schedule.lanes));
  source.recipe.phases.push_back({"convolve_channels", tiles.blocks(), schedule.threads, 1,
                                  static_cast<int>(tiles.shared_bytes())});
  return source;
}

}  // namespace

const KernelTemplate& cuda_depthwise_channels_last() {
  static const PrintedTemplate<CudaDepthwiseChannelsLastSchedule> made({
      .version = 5,
      .backend = Backend::kCuda,
      .family = Family::kConvolution,
      .check = check_channels_last,
      .candidates = channels_last_candidates,
      .print_for = print_channels_last,
      .expected_efficiency = [](const Workload&) { return 0.6; },
  });
  return made;
}

}  // namespace kiln
