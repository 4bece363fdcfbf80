#include "compiler_core/tune/space_matmul.h"

#include <algorithm>
#include <cmath>

#include "compiler_core/tune/vector_width.h"

namespace kiln {
namespace {

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
int64_t round_up(int64_t a, int64_t b) {
  return ceil_div(a, b) * b;
}

// What a core is taken to have: enough to rank schedules, never to reject one.
constexpr double kPackNanosPerByte = 0.12;    // read once, written once, at memory speed
constexpr double kStreamNanosPerByte = 0.08;  // read once
constexpr double kFlopsPerNano = 150;
constexpr size_t kMostCandidates = 14;

struct RegisterTile {
  int rows, vectors;
};

// Register tiles by how many accumulators they keep: rows x vectors and the vectors of b have to
// fit 32 registers of 64 bytes, or 16 of 32.
std::vector<RegisterTile> panel_tiles(const Target& target) {
  if (vector_bytes(target) == 64)
    return {{14, 2}, {9, 3}, {6, 4}, {12, 2}, {8, 3}, {16, 1}, {4, 4}, {2, 4}, {1, 8}};
  return {{6, 2}, {4, 3}, {5, 2}, {8, 1}, {2, 4}, {1, 4}};
}

std::vector<RegisterTile> dot_tiles(const Target& target) {
  if (vector_bytes(target) == 64) return {{8, 3}, {4, 6}, {6, 4}, {5, 4}, {3, 6}, {2, 8}, {1, 8}};
  return {{4, 3}, {3, 4}, {2, 5}, {1, 8}};
}

}  // namespace

Result<MatmulSchedule> MatmulSchedule::from(const Schedule& schedule) {
  if (schedule.family != Family::kMatmul)
    return fail(Code::kInvalidArgument, "not a matmul schedule");
  const int64_t lanes = schedule.get("lanes", 8), dot = schedule.get("dot", 0);
  const int64_t mr = schedule.get("mr", 4), nr = schedule.get("nr", 16);
  const int64_t kc = schedule.get("kc", 256), mc = schedule.get("mc", 96);
  const int64_t nc = schedule.get("nc", 256), pack_b = schedule.get("pack_b", 1);
  const int64_t rows_first = schedule.get("rows_first", 1);
  TRY_STATUS(check_lanes(lanes));
  const auto flag = [](int64_t value) { return value == 0 || value == 1; };
  const auto block = [](int64_t value) { return value >= 1 && value <= int64_t{1} << 24; };
  const bool tile = mr >= 1 && nr >= 1 && mr <= 32 && nr <= 32 * lanes &&
                    (dot == 1 ? mr * nr <= 64 : nr % lanes == 0 && mr * (nr / lanes) <= 64);
  if (!tile || !flag(dot) || !flag(pack_b) || !flag(rows_first) || !block(kc) || !block(mc) ||
      !block(nc))
    return fail(Code::kInvalidArgument, "out of range: " + schedule.to_string());
  return MatmulSchedule{static_cast<int>(lanes),
                        dot == 1,
                        static_cast<int>(mr),
                        static_cast<int>(nr),
                        kc,
                        mc,
                        nc,
                        pack_b == 1,
                        rows_first == 1};
}

Schedule MatmulSchedule::to_schedule() const {
  return {Family::kMatmul,
          {{"lanes", lanes},
           {"dot", dot},
           {"mr", mr},
           {"nr", nr},
           {"kc", kc},
           {"mc", mc},
           {"nc", nc},
           {"pack_b", pack_b},
           {"rows_first", rows_first}}};
}

bool fits(const MatmulSchedule& schedule, const MatmulProblem& problem) {
  const bool one_column = problem.n == 1, one_deep = problem.k == 1;
  if (schedule.dot) return problem.b.row_stride == 1 || one_deep;
  return schedule.pack_b || problem.b.column_stride == 1 || one_column;
}

namespace {

// Nanoseconds on one core, roughly.
double estimate(const MatmulSchedule& schedule, const MatmulProblem& problem, int units) {
  const double m = static_cast<double>(round_up(problem.m, schedule.mr));
  const double n = static_cast<double>(round_up(problem.n, schedule.nr));
  const double k = static_cast<double>(problem.k), batches = static_cast<double>(problem.batches);
  const double stored = static_cast<double>(size_of(problem.stored));
  const double value = static_cast<double>(size_of(compute_type(problem.stored)));
  // Loads against multiply-adds: two of each a cycle.
  const double vectors =
      schedule.dot ? schedule.nr : static_cast<double>(schedule.nr) / schedule.lanes;
  const double fmas = schedule.mr * vectors;
  const double loads = schedule.mr + vectors;
  // Fewer than ten independent sums leave the units waiting.
  const double efficiency = std::min(1.0, fmas / (loads * 1.6)) * std::min(1.0, fmas / 10);
  double nanos = 2 * m * n * k * batches / (kFlopsPerNano * efficiency);
  const double b_bytes = n * k * (problem.b.is_shared() ? 1 : batches);
  if (!schedule.dot && schedule.pack_b) {
    nanos += b_bytes * (stored + value) * kPackNanosPerByte;
    if (problem.b.row_stride == 1) nanos += b_bytes * value * 0.05;  // transposed on the way
  } else {
    nanos += b_bytes * stored * kStreamNanosPerByte;
    // Every later pass over the rows converts b again, and reads it with long strides.
    const double passes = m / schedule.mr - 1;
    nanos += passes * b_bytes * (stored < value ? 0.02 : 0.005) * (schedule.dot ? 1 : 2);
  }
  if (!schedule.dot) nanos += m * k * batches * (stored + value) * kPackNanosPerByte;
  const int64_t blocks = problem.batches * ceil_div(problem.n, schedule.nc) *
                         (schedule.dot ? 1 : ceil_div(problem.m, schedule.mc));
  const int64_t rounds = ceil_div(blocks, units) * units;
  return nanos * static_cast<double>(rounds) / static_cast<double>(blocks);
}

}  // namespace

std::vector<Schedule> matmul_space(const Workload& workload, const Target& target) {
  const MatmulProblem problem = MatmulProblem::of(workload.graph);
  const int lanes = static_cast<int>(vector_bytes(target) /
                                     std::max<int64_t>(4, size_of(compute_type(problem.stored))));
  const int units = std::max(target.units, 1);
  std::vector<MatmulSchedule> all;
  const auto add = [&](MatmulSchedule schedule) {
    if (fits(schedule, problem)) all.push_back(schedule);
  };
  for (const RegisterTile tile : panel_tiles(target)) {
    const int nr = tile.vectors * lanes;
    for (const bool pack_b : {true, false})
      for (const int64_t kc : {int64_t{256}, int64_t{384}, int64_t{1024}, problem.k}) {
        if (kc > problem.k) continue;
        const int64_t mc = tile.rows * std::max<int64_t>(1, 144 / tile.rows);
        add({lanes, false, tile.rows, nr, kc, mc, round_up(512, nr), pack_b, true});
        add({lanes, false, tile.rows, nr, kc, mc * 2, round_up(256, nr), pack_b, true});
        add({lanes, false, tile.rows, nr, kc, mc * 2, round_up(1024, nr), pack_b, false});
      }
  }
  if (problem.m <= 256)
    for (const RegisterTile tile : dot_tiles(target))
      add({lanes, true, tile.rows, tile.vectors, problem.k, problem.m, 96, false, true});
  std::stable_sort(all.begin(), all.end(), [&](const MatmulSchedule& x, const MatmulSchedule& y) {
    return estimate(x, problem, units) < estimate(y, problem, units);
  });
  if (all.size() > kMostCandidates) all.resize(kMostCandidates);
  std::vector<Schedule> space;
  for (const MatmulSchedule& schedule : all) space.push_back(schedule.to_schedule());
  return space;
}

}  // namespace kiln
