// The schedules of matmul kernels. Values.
#pragma once

#include <vector>

#include "compiler_core/kernels/decisions.h"
#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/kernels/matmul/matmul_problem.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

// Where the inner loop of a panel kernel reads b. Persisted as numbers.
enum class BFrom : uint8_t {
  kInPlace = 0,
  kPacked = 1,  // all of it copied into panels first, once
  kSlab = 2,    // each block copies the part it needs, as deep as kc
};

struct CpuMatmulSchedule {
  static constexpr std::string_view kTemplate = "cpu.matmul";

  int lanes = 8;        // elements a vector
  bool dot = false;     // dot products along k instead of panels; then only mr, nr, nc count
  int mr = 4, nr = 16;  // register tile: rows, columns
  int64_t kc = 256;     // depth kept in the first cache at a time
  int64_t mc = 96;      // a block of the grid: rows, columns
  int64_t nc = 256;
  BFrom b_from = BFrom::kPacked;
  bool rows_first = true;  // neighbouring blocks share columns of b
  // Panels of a; else it is read where it lies and no phase goes before: then b is no kPacked.
  bool a_packed = true;

  static void fields(auto& f, auto& s) {
    f("lanes", s.lanes, kVectorLanes);
    f("dot", s.dot);
    f("mr", s.mr, between(1, 32));
    f("nr", s.nr, between(1, 512));
    f("kc", s.kc, kBlockSizes);
    f("mc", s.mc, kBlockSizes);
    f("nc", s.nc, kBlockSizes);
    f("b_from", s.b_from, between(0, 2));
    f("rows_first", s.rows_first);
    f("a_packed", s.a_packed);
  }
  bool go_together() const {
    // A phase of its own packs what all blocks read, as it packs a's panels.
    const bool phases = a_packed || (!dot && b_from != BFrom::kPacked);
    const bool tile = dot ? mr * nr <= 64 : nr % lanes == 0 && mr * (nr / lanes) <= 64;
    return phases && tile && nr <= 32 * lanes;
  }
};

// Whether `schedule` can be written for `problem`: vectors have to be contiguous, and the matrices
// of dot products of constant size; an a that is not packed needs constant sizes too, a whole tile
// of rows, and elements that need no conversion.
bool fits(const CpuMatmulSchedule& schedule, const MatmulProblem& problem);
bool fits(const CpuMatmulSchedule& schedule, const SizedMatmul& problem);

// REQUIRES: workload.family is kMatmul, its sizes are constants.
std::vector<Schedule> cpu_matmul_candidates(const Workload& workload, const Target& target);

// REQUIRES: the guarantees of kMatmul. kInvalidArgument when the schedule
// does not fit the operands.
Result<Source> print_cpu_matmul(const Graph& graph, const CpuMatmulSchedule& schedule);

// "cpu.matmul".
const KernelTemplate& cpu_matmul();

}  // namespace kiln
