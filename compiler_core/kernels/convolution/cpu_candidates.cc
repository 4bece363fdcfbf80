#include "compiler_core/kernels/convolution/cpu_convolution.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/analysis/ranked_space.h"
#include "compiler_core/kernels/printed_template.h"

namespace kiln {
namespace {

// A core as cpu_candidates.cc of matmul takes it: enough to rank schedules, never to reject one.
constexpr double kFlopsPerNano = 160;
constexpr double kPackNanosPerByte = 0.11;
constexpr double kVectorNanos = 0.8;  // a vector of windows put into a panel, read as it lies
constexpr double kLaneNanos = 0.3;    // lane by lane
constexpr double kTileNanosPerByte = 0.02;
constexpr int64_t kMostBlockBytes = 1 << 20;  // of a copy in scratch: what the second cache holds
constexpr size_t kMostCandidates = 8;

struct RegisterTile {
  int rows, vectors;
};

std::vector<RegisterTile> register_tiles(const Target& target) {
  if (vector_bytes(target) == 64)
    return {{8, 3}, {14, 2}, {12, 2}, {6, 4}, {16, 1}, {4, 4}, {2, 4}, {1, 4}, {8, 1}, {1, 1}};
  return {{6, 2}, {4, 3}, {5, 2}, {8, 1}, {3, 3}, {2, 4}, {1, 4}, {1, 1}};
}

int64_t value_bytes(const ConvolutionProblem& problem) {
  return std::max<int64_t>(4, size_of(problem.product.result));
}

}  // namespace

bool fits(const CpuConvolutionSchedule& schedule, const ConvolutionProblem& problem) {
  const MatmulProblem& product = problem.product;
  const bool in_panel = schedule.a_packed || (problem.flat_weight && product.m % schedule.mr == 0 &&
                                              product.stored == product.result);
  if (schedule.x_from == XFrom::kInPlace) return in_panel && problem.is_inside();
  return in_panel && (schedule.x_from == XFrom::kField ||
                      problem.channels * problem.plane() * value_bytes(problem) <= kMostBlockBytes);
}

namespace {

// Nanoseconds of all cores together, roughly.
double estimate(const CpuConvolutionSchedule& schedule, const ConvolutionProblem& problem,
                int units) {
  const MatmulProblem& product = problem.product;
  const int vectors = schedule.nr / schedule.lanes;
  const int64_t lines = product.n / problem.out[2];
  const double m = static_cast<double>(round_up(product.m, schedule.mr));
  const double k = static_cast<double>(product.k), batches = static_cast<double>(product.batches);
  const double value = static_cast<double>(value_bytes(problem));
  const double fmas = schedule.mr * vectors, loads = schedule.mr + vectors;
  double efficiency =
      std::min(1.0, fmas / loads) * (fmas < 16 ? fmas / 24 : 1.0) * (1.08 - 0.15 * loads / fmas);
  double n = static_cast<double>(round_up(product.n, schedule.nr));
  if (schedule.slide) {
    // A row's rest goes vector by vector.
    const int64_t whole = problem.out[2] / schedule.nr * schedule.nr;
    const int64_t rest = round_up(problem.out[2] - whole, schedule.lanes);
    const double slower = std::max(1.0, 16.0 / schedule.mr / 2);
    n = static_cast<double>(lines) *
        (static_cast<double>(whole) + static_cast<double>(rest) * slower);
    if (problem.stride[2] != 1) efficiency /= 1 + 16.0 / schedule.mr;
  }
  double nanos = 2 * m * n * k * batches / (kFlopsPerNano * efficiency);
  const int64_t row_blocks = ceil_div(product.m, schedule.mc);
  if (!schedule.slide) {
    const bool rows = problem.stride[2] == 1 && problem.out[2] >= schedule.lanes;
    const double broken = rows ? static_cast<double>(schedule.lanes) / problem.out[2] : 1;
    const double vector = (1 - broken) * kVectorNanos + broken * kLaneNanos * schedule.lanes;
    nanos += k * n / schedule.lanes * vector * batches * static_cast<double>(row_blocks);
    nanos += (ceil_div(product.k, schedule.kc) - 1) * m * n * batches * value * kTileNanosPerByte;
  }
  const double field = static_cast<double>(problem.plane() * problem.channels) * batches * value;
  const int64_t column_blocks = ceil_div(product.n, schedule.nc);
  if (schedule.x_from == XFrom::kField) nanos += field * 2 * kPackNanosPerByte;
  if (schedule.x_from == XFrom::kBlock)
    nanos += field * kPackNanosPerByte * static_cast<double>(row_blocks * column_blocks);
  if (schedule.a_packed)
    nanos += static_cast<double>(product.m * problem.groups) * k * 2 * value * kPackNanosPerByte;
  const int64_t blocks = product.batches * row_blocks * column_blocks;
  const int64_t rounds = ceil_div(blocks, units) * units;
  return nanos * static_cast<double>(rounds) / static_cast<double>(blocks);
}

std::vector<CpuConvolutionSchedule> all_schedules(const ConvolutionProblem& problem,
                                                  const Target& target, int lanes) {
  const MatmulProblem& product = problem.product;
  std::vector<CpuConvolutionSchedule> all;
  for (const RegisterTile tile : register_tiles(target)) {
    if (tile.rows < 4 && product.m > 2 * tile.rows) continue;  // made for one or two passes
    if (tile.rows > 1 && tile.rows >= 2 * product.m) continue;
    const int nr = tile.vectors * lanes;
    const auto add = [&](bool slide, int64_t kc, int64_t mc, int64_t nc) {
      const int64_t columns =
          slide ? even_block(product.n, std::max(nc, problem.out[2]), problem.out[2])
                : even_block(product.n, nc, nr);
      for (const bool a_packed : {true, false})
        for (const XFrom x_from : {XFrom::kInPlace, XFrom::kField, XFrom::kBlock})
          all.push_back({lanes, slide, tile.rows, nr, std::min(kc, product.k),
                         even_block(product.m, mc, tile.rows), columns, a_packed, x_from});
    };
    for (const int64_t kc : {256, 576}) {
      add(false, kc, 512, 256);
      add(false, kc, 512, 96);
      add(false, kc, 128, 512);
    }
    add(true, product.k, 1 << 20, 256);
    add(true, product.k, 64, 1 << 20);
    add(true, product.k, 1 << 20, 1 << 20);
  }
  return all;
}

}  // namespace

std::vector<Schedule> cpu_convolution_candidates(const Workload& workload, const Target& target) {
  const ConvolutionProblem problem = ConvolutionProblem::of(workload.graph);
  const int lanes = static_cast<int>(vector_bytes(target) / value_bytes(problem));
  std::vector<RankedDecisions<CpuConvolutionSchedule>> ranked;
  for (const CpuConvolutionSchedule& schedule : all_schedules(problem, target, lanes))
    if (fits(schedule, problem))
      ranked.push_back({estimate(schedule, problem, std::max(target.units, 1)), schedule});
  return most_promising(std::move(ranked), kMostCandidates,
                        [](const CpuConvolutionSchedule& schedule) {
                          return std::make_tuple(schedule.slide, schedule.a_packed, schedule.x_from,
                                                 schedule.mr, schedule.nr);
                        });
}

namespace {

constexpr int64_t kLeastBlock = 96;
constexpr int64_t kMostDepth = 512, kMostPositions = 512;  // of a panel of windows

// A block is tiles and not rows of the result; a copy of x is as large as x turns out to be.
std::optional<CpuConvolutionSchedule> adapt(const Graph& graph, CpuConvolutionSchedule schedule) {
  const ConvolutionProblem problem = ConvolutionProblem::of(graph);
  if (problem.sized.is_constant()) return schedule;
  schedule.slide = false;
  schedule.kc = std::min(schedule.kc, kMostDepth);
  schedule.nc = round_up(std::max(kLeastBlock, std::min(schedule.nc, kMostPositions)), schedule.nr);
  if (!problem.is_inside() || schedule.x_from == XFrom::kBlock) schedule.x_from = XFrom::kField;
  if (!fits(schedule, problem)) return std::nullopt;
  return schedule;
}

// Weights in panels fit whatever the weight is.
CpuConvolutionSchedule with_packed_weights(const Graph& graph, CpuConvolutionSchedule schedule) {
  schedule.a_packed = true;
  return *adapt(graph, schedule);
}

}  // namespace

const KernelTemplate& cpu_convolution() {
  static const PrintedTemplate<CpuConvolutionSchedule> made({
      .version = 4,
      .backend = Backend::kCpu,
      .family = Family::kConvolution,
      .check = check_channels_are_second,
      .candidates = cpu_convolution_candidates,
      .print = print_cpu_convolution,
      .adapt = adapt,
      .fallback = with_packed_weights,
  });
  return made;
}

}  // namespace kiln
