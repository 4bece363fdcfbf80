// Products of fp16 and bf16 matrices, of 8-bit floats and of 8-bit integers on the tensor cores of
// compute capability 9.0 (wgmma), with an elementwise epilogue. Operands come through the copy engine
// (TMA), so a row, or a column where it is the contiguous one, has to begin at a multiple of 16 bytes;
// those of 8 bits are contiguous along the depth, as the tensor cores have it. The number of rows
// or of batches may have symbols; all other sizes are constants.
//
// Products of 8-bit floats are added up in f32 each 128 of the depth: the tensor cores add them in 14
// bits (tests/support/fake_cuda does too).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "compiler_core/kernels/decisions.h"
#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/kernels/matmul/matmul_problem.h"

namespace kiln {

struct WgmmaMatmulSchedule {
  static constexpr std::string_view kTemplate = "cuda.matmul.wgmma";
  static constexpr int kDepth = 64;              // of a step, of halves
  static constexpr int kStepBytes = 128;         // of a line
  static constexpr int kEpilogueRegisters = 40;  // of a thread, beside its sums

  int bm = 128, bn = 128;  // a block's tile of the product
  int groups = 2;          // warpgroups that multiply
  int stages = 4;          // steps in shared memory at once
  int raster = 8;          // rows of tiles that neighbouring blocks stay in
  int blocks = 1;          // an SM: while one stores its results, another multiplies
  // Steps of the second operand that stay in shared memory: all of them, where all tiles of a block have
  // the same columns, or none.
  int kept = 0;
  // 0: warpgroups cooperate, each has bm / groups rows of a tile. 1: they take whole tiles by turns
  // (ping-pong), while one stores its results, another multiplies.
  int ping_pong = 0;
  // Blocks of a cluster that divide the steps of a tile. Each ends a share of it, when the others have
  // brought it their sums (wgmma_divided.cuh).
  int splits = 1;

  // Those of every kernel that has such tiles.
  static void tile_fields(auto& f, auto& s) {
    f("bm", s.bm, multiples_of(64, 64, 256));
    f("bn", s.bn, multiples_of(16, 16, 256));
    f("groups", s.groups, between(1, 3));
    f("stages", s.stages, between(2, 16));
    f("raster", s.raster, between(1, 64));
    f("blocks", s.blocks, between(1, 4));
    f("kept", s.kept, between(0, 16));
    f("ping_pong", s.ping_pong, between(0, 1));
  }
  static void fields(auto& f, auto& s) {
    tile_fields(f, s);
    f("splits", s.splits, between(1, 8));
  }
  // Rows of a warpgroup come in 64, and its sums fit its registers.
  bool go_together() const {
    return bm % rows() == 0 && rows() % 64 == 0 && rows() * bn <= 64 * 256 &&
           (ping_pong == 0 || (groups > 1 && blocks == 1 && kept == 0)) &&
           (splits == 1 || (ping_pong == 0 && blocks == 1 && kept == 0)) &&
           (blocks == 1 || registers(false) + kEpilogueRegisters <= multiplying_registers(0));
  }

  int rows() const { return ping_pong == 1 ? bm : bm / groups; }  // of a tile, of a warpgroup
  int threads() const { return 128 * (groups + 1); }
  // Registers of a thread that copies, of which its code needs `least`, and of one that multiplies.
  int copying_registers(int least, bool promotes = false) const;
  int multiplying_registers(int least_copying, bool promotes = false) const;
  // That hold sums in a thread; where they are promoted, also those of one step.
  int registers(bool promotes) const { return rows() * bn / 128 + (promotes ? bn / 2 : 0); }
  // Shared memory of the operands.
  int ring_bytes() const { return (stages * bm + (kept > 0 ? kept : stages) * bn) * kStepBytes; }
  // Columns that a warp stores at a time, by way of shared memory.
  int staged_columns(bool boxes) const;
  // Boxes of 16 rows and staged_columns() halves that a warp has under way.
  int boxes() const;
  // Shared memory of a warp, through which its results are stored.
  int staged_bytes(bool boxes) const;
  // What the blocks of a cluster bring a block, in the memory of its operands.
  int brought_bytes(bool boxes) const;
  // Dynamic shared memory of a block.
  int shared_bytes(bool boxes) const;
};

// Dynamic shared memory of a block at most, of so many an SM; each takes 1 KB more.
constexpr int most_shared_bytes(int blocks) {
  return (228 << 10) / blocks / 1024 * 1024 - 1024;
}

// kUnsupported: what the copy engine or the tensor cores lack for this workload's operands.
// REQUIRES: workload.family is kMatmul.
Status check_wgmma(const Workload& workload);

// Whether the results are halves that the copy engine can store, in boxes; else threads store them.
// `columns`: of a row of results as they are stored.
bool ends_in_boxes(const Graph& workload, int64_t columns);

// The depth of a step, in elements.
int64_t step_depth(const MatmulProblem& problem);

// Whether the copy engine can read (or write) it: one contiguous axis, the columns where `by_rows`
// is asked for, all else at multiples of 16 bytes.
bool is_mappable(const MatmulOperand& operand, bool by_rows = false);

// So many neighbouring columns have one scale of the second operand, where it is scaled (by the depth,
// maybe: plan/dequantised.h); 0: it is not, or otherwise.
int64_t scale_columns(const MatmulProblem& problem);

// Whether a kernel of whole tiles, in boxes of 32 and 64 columns, has room for the schedule, and its tiles can
// be counted. `steps`: those of the second operand, where the kernel can keep it; 0: it cannot.
bool fits_blocks(const WgmmaMatmulSchedule& schedule, const MatmulProblem& problem, bool boxes,
                 int64_t steps = 0);

// Tiles that are tried, and what ranks them: cycles of an SM for a step, for what stands around a
// tile's steps (until the first has come, and the results are stored), for so many `waves` of tiles on each
// SM, and for bytes that so many blocks read from memory.
struct WgmmaTile {
  int bm, bn, groups;
};
std::span<const WgmmaTile> wgmma_tiles();
double step_cycles(const WgmmaMatmulSchedule& schedule, const MatmulProblem& problem);
double tile_cycles(const WgmmaMatmulSchedule& schedule, double steps);
double sm_cycles(const WgmmaMatmulSchedule& schedule, const MatmulProblem& problem, double steps,
                 int64_t waves);
double memory_cycles(double bytes, int64_t blocks);

// Whether so many tiles are worth warpgroups that take them by turns (ping-pong): where most blocks have one,
// nobody multiplies while it is stored.
bool take_turns(int64_t tiles, int64_t sms);

// The part of a device's least time that such a kernel reaches (tests/gpu/LOG.md): large products do what
// cuBLAS does, those of few rows wait for memory.
double wgmma_efficiency(const MatmulProblem& problem);

// Schedules of tiles for which `fits` is true with some number of stages, best guess first.
// `operand_bytes`: what memory has of the operands, where that is less than the problem says
// (windows overlap).
std::vector<WgmmaMatmulSchedule> ranked_tiles(
    const MatmulProblem& problem, const Target& target,
    const std::function<bool(const WgmmaMatmulSchedule&)>& fits,
    std::optional<double> operand_bytes = std::nullopt);

// The same as schedules of a template whose decisions are those of the tiles.
template <class Decisions>
std::vector<Schedule> ranked_schedules(const MatmulProblem& problem, const Target& target,
                                       const std::function<bool(const WgmmaMatmulSchedule&)>& fits,
                                       std::optional<double> operand_bytes = std::nullopt) {
  std::vector<Schedule> space;
  for (const WgmmaMatmulSchedule& schedule : ranked_tiles(problem, target, fits, operand_bytes))
    space.push_back(to_schedule(Decisions{schedule}));
  return space;
}

// Whether the tile fits the operands: lines that are not contiguous along the depth come in 64.
bool fits(const WgmmaMatmulSchedule& schedule, const Graph& workload);

// REQUIRES: check_wgmma(workload), whose sizes are constants.
std::vector<Schedule> wgmma_candidates(const Workload& workload, const Target& target);

// REQUIRES: check_wgmma() of its workload. kInvalidArgument when the
// schedule does not fit the operands.
Result<Source> print_wgmma_matmul(const Graph& graph, const WgmmaMatmulSchedule& schedule,
                                  const Target& target);

// Products of one first operand (the family kProducts): `bn` columns of a tile are those of all products
// of an output, side by side.
struct WgmmaJoinedSchedule : WgmmaMatmulSchedule {
  static constexpr std::string_view kTemplate = "cuda.products.wgmma";

  static void fields(auto& f, auto& s) { tile_fields(f, s); }
};

// "cuda.matmul.wgmma", "cuda.products.wgmma".
const KernelTemplate& wgmma_matmul();
const KernelTemplate& wgmma_joined();

}  // namespace kiln
