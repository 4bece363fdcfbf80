#include <algorithm>
#include <optional>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/wgmma/convolution_layout.h"
#include "compiler_core/kernels/wgmma/wgmma_convolution.h"

namespace kiln {
namespace {

constexpr size_t kMostIm2col = 3;
// A tile of few results a position: a step brings less of the images again.
constexpr WgmmaTile kTallTile{256, 64, 2};
// Of warpgroups that take them by turns.
constexpr WgmmaTile kPingPongTiles[] = {{128, 128, 2}, {128, 96, 2}, {128, 64, 2}, {64, 128, 2}};

// Windows overlap: memory has less of the images than the product says.
double bytes_of(const ConvolutionProblem& problem, const MatmulProblem& product) {
  const int64_t pixels = problem.product.batch[0] * problem.in[1] * problem.in[2];
  return 2 * static_cast<double>(pixels * problem.channels + product.n * product.k);
}

// Cycles of an SM for schedules of windows that the copy engine brings. That blocks share tiles costs
// 30,000 cycles whatever the tile (3x3, 512x7x7, three tiles, tests/gpu/LOG.md): counters that are
// zeroed in front of the kernel, sums that go through the L2, a second start of the pipeline.
class Im2colRanking {
 public:
  Im2colRanking(const ConvolutionProblem& problem, const MatmulProblem& product,
                const Target& target)
      : product_(product),
        sms_(cuda_limits(target).sms),
        bytes_(bytes_of(problem, product)),
        steps_(
            static_cast<double>(problem.window[1] * problem.window[2] *
                                ceil_div(problem.channels, int64_t{WgmmaMatmulSchedule::kDepth}))) {
  }

  double steps() const { return steps_; }

  double cycles(const WgmmaConvolutionSchedule& schedule) const {
    constexpr double kMeetingCycles = 30'000, kPartBytes = 40;
    const int64_t tiles = ceil_div(product_.m, schedule.bm) * ceil_div(product_.n, schedule.bn);
    const double step = step_cycles(schedule, product_), around = tile_cycles(schedule, steps_);
    if (schedule.shared == 0)
      return std::max(sm_cycles(schedule, product_, steps_, ceil_div(tiles, sms_)),
                      memory_cycles(bytes_, std::min(sms_, tiles)));
    // A block ends as many tiles as it begins, and leaves one to another block; sums are written
    // once and read by one of those that share them.
    const double share = static_cast<double>(tiles) / static_cast<double>(sms_);
    const double part = static_cast<double>(schedule.bm) * schedule.bn * 4 / kPartBytes;
    return std::max(
        share * steps_ * step + (share + 1) * around + kMeetingCycles + part * (2 + 1 / share),
        memory_cycles(bytes_, sms_));
  }

 private:
  const MatmulProblem& product_;
  const int64_t sms_;
  const double bytes_, steps_;
};

// Best guess first.
std::vector<Schedule> im2col_candidates(const Graph& graph, const ConvolutionProblem& problem,
                                        const MatmulProblem& product, const Target& target) {
  if (!has_im2col(problem)) return {};
  const Im2colRanking ranking(problem, product, target);
  // Whole 64 channels at a time may be many more steps than threads need, who gather what there is.
  if (3 * ranking.steps() >
      4 * static_cast<double>(ceil_div(product.k, int64_t{WgmmaMatmulSchedule::kDepth})))
    return {};
  std::vector<std::pair<double, WgmmaConvolutionSchedule>> ranked;
  const auto try_tile = [&](const WgmmaTile& tile, int shared, int ping_pong = 0) {
    // A tile of which at most half is used has a smaller sister.
    if ((tile.bm > 64 && tile.bm >= 2 * product.m) || (tile.bn > 32 && tile.bn >= 2 * product.n))
      return;
    const int64_t tiles = ceil_div(product.m, tile.bm) * ceil_div(product.n, tile.bn);
    if (ping_pong == 1 && !take_turns(tiles, cuda_limits(target).sms)) return;
    // Weights are small: neighbouring blocks share pixels, which they bring once.
    constexpr int kStages = 8, kRaster = 1;
    WgmmaConvolutionSchedule schedule{{tile.bm, tile.bn, tile.groups, kStages, kRaster}, 1, shared};
    schedule.ping_pong = ping_pong;
    while (schedule.stages > 3 && !fits_convolution(schedule, graph)) --schedule.stages;
    if (fits_convolution(schedule, graph)) ranked.emplace_back(ranking.cycles(schedule), schedule);
  };
  for (const WgmmaTile& tile : wgmma_tiles())
    for (const int shared : {0, 1}) try_tile(tile, shared);
  try_tile(kTallTile, 0);
  for (const WgmmaTile& tile : kPingPongTiles) try_tile(tile, 0, 1);
  std::ranges::stable_sort(ranked, {}, [](const auto& entry) { return entry.first; });
  std::vector<Schedule> best;
  for (const auto& [cycles, schedule] : ranked)
    if (best.size() < kMostIm2col) best.push_back(to_schedule(schedule));
  return best;
}

}  // namespace

// Windows that the copy engine brings won wherever it can bring them (tests/gpu/LOG.md, "Tuning"). The
// best candidate whose threads gather them stands behind.
std::vector<Schedule> wgmma_convolution_candidates(const Workload& workload, const Target& target) {
  const Graph& graph = workload.graph;
  const ConvolutionProblem problem = ConvolutionProblem::of(graph);
  const MatmulProblem product = product_of(problem);
  std::optional<double> bytes;
  if (problem.channels_last) bytes = bytes_of(problem, product);
  std::vector<Schedule> all = im2col_candidates(graph, problem, product, target);
  std::vector<Schedule> gathered = ranked_schedules<WgmmaConvolutionSchedule>(
      product, target,
      [&](const auto& tried) { return fits_convolution(WgmmaConvolutionSchedule{tried}, graph); },
      bytes);
  if (!all.empty() && !gathered.empty()) gathered.resize(1);
  all.insert(all.end(), gathered.begin(), gathered.end());
  return all;
}

}  // namespace kiln
