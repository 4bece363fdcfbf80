#include "compiler_core/kernels/matmul/cpu_matmul.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/analysis/ranked_space.h"
#include "compiler_core/kernels/printed_template.h"

namespace kiln {
namespace {

// A core's rates: enough to rank schedules, never to reject one. Measured on one
// Sapphire Rapids core; see tests/bench/LOG.md.
constexpr double kFlopsPerNano = 160;
constexpr double kPackNanosPerByte = 0.11;     // read once, written once
constexpr double kStreamNanosPerByte = 0.035;  // read once, in order
constexpr double kSlabNanosPerElement = 0.3;
constexpr double kTileNanosPerByte = 0.02;
constexpr double kDotNanosPerSum = 0.5;  // a sum across lanes, sixteen at a time
constexpr double kPhaseNanos = 400;      // until all cores have begun and ended one
// Beyond this much of it, what is read of an unpacked a falls out of the first cache.
constexpr int64_t kMostBytesInPlace = 1 << 18;
constexpr size_t kMostCandidates = 8;

struct RegisterTile {
  int rows, vectors;  // of panels: vectors of columns; of dot products: columns
};

// Register tiles for panels: rows x vectors sums and the vectors of b fit 32 registers of 64 bytes,
// or 16 of 32.
std::vector<RegisterTile> panel_tiles(const Target& target) {
  if (vector_bytes(target) == 64)
    return {{8, 3}, {14, 2}, {12, 2}, {8, 2}, {6, 4}, {16, 1}, {4, 4}, {3, 4}, {2, 4}, {1, 4}};
  return {{6, 2}, {4, 3}, {5, 2}, {8, 1}, {3, 3}, {2, 4}, {1, 4}};
}

// For dot products: rows x columns sums, the rows of a and one vector of b.
std::vector<RegisterTile> dot_tiles(const Target& target) {
  if (vector_bytes(target) == 64) return {{4, 6}, {5, 5}, {6, 4}, {3, 6}, {2, 8}, {1, 8}};
  return {{3, 4}, {4, 2}, {2, 5}, {1, 6}};
}

}  // namespace

namespace {

template <class Size>
bool a_needs_no_conversion(const MatmulProblemOf<Size>& problem) {
  return problem.stored == problem.result &&
         (problem.result == DType::kF32 || problem.result == DType::kF64);
}

}  // namespace

bool fits(const CpuMatmulSchedule& schedule, const MatmulProblem& problem) {
  if (!schedule.a_packed && (problem.m < schedule.mr || !a_needs_no_conversion(problem)))
    return false;
  const bool one_column = problem.n == 1, one_deep = problem.k == 1;
  if (schedule.dot) return problem.b.row_stride == 1 || one_deep;
  return schedule.b_from != BFrom::kInPlace || problem.b.column_stride == 1 || one_column;
}

bool fits(const CpuMatmulSchedule& schedule, const SizedMatmul& problem) {
  const bool constant =
      is_constant({problem.m, problem.n, problem.k, problem.a.row_stride, problem.a.column_stride,
                   problem.b.row_stride, problem.b.column_stride});
  if (!schedule.a_packed && (!constant || !problem.batches.is_constant() ||
                             problem.m.constant() < schedule.mr || !a_needs_no_conversion(problem)))
    return false;
  if (schedule.dot) return constant && (problem.b.row_stride.is(1) || problem.k.is(1));
  return schedule.b_from != BFrom::kInPlace || problem.b.column_stride.is(1) || problem.n.is(1);
}

namespace {

// Nanoseconds of all cores together, roughly.
double estimate(const CpuMatmulSchedule& schedule, const MatmulProblem& problem, int units) {
  const int vectors = schedule.dot ? schedule.nr : schedule.nr / schedule.lanes;
  const double m = static_cast<double>(round_up(problem.m, schedule.mr));
  const double n = static_cast<double>(round_up(problem.n, schedule.nr));
  const double k = static_cast<double>(problem.k), batches = static_cast<double>(problem.batches);
  const double stored = static_cast<double>(size_of(problem.stored));
  const double value = static_cast<double>(size_of(compute_type(problem.stored)));
  // Two multiply-adds and two loads a cycle; below sixteen sums their latency shows.
  const double fmas = schedule.mr * vectors, loads = schedule.mr + vectors;
  const double efficiency = std::min(1.0, fmas / loads) * (fmas < 16 ? fmas / 24 : 1.0) *
                            (1.08 - 0.15 * loads / fmas) * (schedule.dot ? 0.8 : 1.0);
  const double compute = 2 * m * n * k * batches / (kFlopsPerNano * efficiency);

  const double b_elements = n * k * (problem.b.is_shared() ? 1 : batches);
  const double a_elements = m * k * (problem.a.is_shared() ? 1 : batches);
  const double stream = b_elements * stored * kStreamNanosPerByte;
  const bool packs = schedule.a_packed || schedule.b_from == BFrom::kPacked;
  double nanos = kPhaseNanos * units * (packs ? 2 : 1);
  if (schedule.a_packed) nanos += a_elements * (stored + value) * kPackNanosPerByte;
  if (schedule.dot) nanos += m * n * batches * kDotNanosPerSum;
  if (schedule.dot || schedule.b_from == BFrom::kInPlace) {
    nanos += std::max(compute, stream) + 0.3 * std::min(compute, stream);
    // Later passes over b convert it again; deep ones with long strides miss the cache.
    const double passes = m / schedule.mr - 1;
    if (stored < value) nanos += passes * b_elements * 0.015;
    if (!schedule.dot && schedule.kc > 64) nanos += passes * b_elements * 0.15;
  } else if (schedule.b_from == BFrom::kPacked) {
    nanos += compute + b_elements * (stored + value) * kPackNanosPerByte;
  } else {
    const double times = static_cast<double>(ceil_div(problem.m, schedule.mc));
    nanos += compute + stream + times * b_elements * kSlabNanosPerElement;
  }
  if (!schedule.dot)  // tiles wait in scratch between the pieces of depth
    nanos += (ceil_div(problem.k, schedule.kc) - 1) * m * n * batches * value * kTileNanosPerByte;
  const int64_t blocks = problem.batches * ceil_div(problem.n, schedule.nc) *
                         (schedule.dot ? 1 : ceil_div(problem.m, schedule.mc));
  const int64_t rounds = ceil_div(blocks, units) * units;
  return nanos * static_cast<double>(rounds) / static_cast<double>(blocks);
}

std::vector<CpuMatmulSchedule> panel_schedules(const MatmulProblem& problem, const Target& target,
                                               int lanes) {
  std::vector<CpuMatmulSchedule> all;
  for (const RegisterTile tile : panel_tiles(target)) {
    if (tile.rows < 4 && problem.m > 2 * tile.rows) continue;  // made for one or two passes
    const int nr = tile.vectors * lanes;
    const auto add = [&](BFrom b_from, int64_t kc, int64_t mc, int64_t nc, bool rows_first) {
      all.push_back({lanes, false, tile.rows, nr, std::min(kc, problem.k),
                     even_block(problem.m, mc, tile.rows), even_block(problem.n, nc, nr), b_from,
                     rows_first});
    };
    for (const int64_t kc : {512, 256, 2048}) {
      add(BFrom::kPacked, kc, 144, 512, true);
      add(BFrom::kPacked, kc, 288, 256, true);
      add(BFrom::kPacked, kc, 144, 256, false);
    }
    for (const int64_t kc : {256, 512}) {
      add(BFrom::kSlab, kc, 512, 256, true);
      add(BFrom::kSlab, kc, 256, 384, true);
    }
    for (const int64_t kc : {64, 32, 512}) {
      add(BFrom::kInPlace, kc, 144, 512, true);
      add(BFrom::kInPlace, kc, 288, 256, true);
    }
  }
  return all;
}

// One phase: for products so small that packing first costs more than it saves. Columns are shared
// out, so that no two blocks of a batch pack the same part of b.
std::vector<CpuMatmulSchedule> one_phase_schedules(const MatmulProblem& problem,
                                                   const Target& target, int lanes) {
  std::vector<CpuMatmulSchedule> all;
  if (problem.m * problem.k * size_of(problem.stored) > kMostBytesInPlace) return all;
  for (const RegisterTile tile : panel_tiles(target)) {
    if (tile.rows < 4 && problem.m > 2 * tile.rows) continue;
    const int nr = tile.vectors * lanes;
    for (const BFrom b_from : {BFrom::kSlab, BFrom::kInPlace})
      for (const int64_t shares : {1, 2, 4}) {
        const int64_t wanted = ceil_div(problem.n, std::max(target.units, 1) * shares);
        all.push_back({lanes, false, tile.rows, nr, std::min<int64_t>(512, problem.k),
                       round_up(problem.m, tile.rows), round_up(wanted, nr), b_from, true, false});
      }
  }
  return all;
}

std::vector<CpuMatmulSchedule> dot_schedules(const MatmulProblem& problem, const Target& target,
                                             int lanes) {
  std::vector<CpuMatmulSchedule> all;
  // Results wait in a row of scratch for each row of a: beyond this they leave the cache.
  if (problem.m > 512) return all;
  for (const RegisterTile tile : dot_tiles(target))
    all.push_back({lanes, true, tile.rows, tile.vectors, problem.k, problem.m,
                   even_block(problem.n, 96, tile.vectors), BFrom::kInPlace, true});
  return all;
}

}  // namespace

std::vector<Schedule> cpu_matmul_candidates(const Workload& workload, const Target& target) {
  const MatmulProblem problem = MatmulProblem::of(workload.graph);
  const int64_t value = std::max<int64_t>(4, size_of(compute_type(problem.stored)));
  const int lanes = static_cast<int>(vector_bytes(target) / value);
  std::vector<RankedDecisions<CpuMatmulSchedule>> ranked;
  for (const auto& family :
       {panel_schedules(problem, target, lanes), one_phase_schedules(problem, target, lanes),
        dot_schedules(problem, target, lanes)})
    for (const CpuMatmulSchedule& schedule : family)
      if (fits(schedule, problem))
        ranked.push_back({estimate(schedule, problem, std::max(target.units, 1)), schedule});
  return most_promising(std::move(ranked), kMostCandidates, [](const CpuMatmulSchedule& schedule) {
    return std::make_tuple(schedule.dot, schedule.a_packed, schedule.b_from, schedule.mr,
                           schedule.nr);
  });
}

namespace {

constexpr int64_t kLeastDepth = 256, kLeastBlock = 96;  // of products whose sizes may grow

// Sizes that may grow far beyond the measured ones are cut into blocks of the usual size.
std::optional<CpuMatmulSchedule> adapt(const Graph& graph, CpuMatmulSchedule schedule) {
  const SizedMatmul problem = SizedMatmul::of(graph);
  if (!fits(schedule, problem)) return std::nullopt;
  if (schedule.dot) return schedule;
  if (!problem.k.is_constant()) schedule.kc = std::max(schedule.kc, kLeastDepth);
  if (!problem.m.is_constant())
    schedule.mc = round_up(std::max(kLeastBlock, schedule.mc), schedule.mr);
  if (!problem.n.is_constant())
    schedule.nc = round_up(std::max(kLeastBlock, schedule.nc), schedule.nr);
  return schedule;
}

// A schedule that can be printed whatever the symbols are.
CpuMatmulSchedule generic(const Graph& /*graph*/, CpuMatmulSchedule chosen) {
  CpuMatmulSchedule schedule;
  schedule.lanes = chosen.lanes;
  schedule.nr = 2 * chosen.lanes;
  schedule.mr = 6;
  return schedule;
}

}  // namespace

const KernelTemplate& cpu_matmul() {
  static const PrintedTemplate<CpuMatmulSchedule> made({
      .version = 3,
      .backend = Backend::kCpu,
      .family = Family::kMatmul,
      .check = check_operands_are_stored,
      .candidates = cpu_matmul_candidates,
      .print = print_cpu_matmul,
      .adapt = adapt,
      .fallback = generic,
  });
  return made;
}

}  // namespace kiln
