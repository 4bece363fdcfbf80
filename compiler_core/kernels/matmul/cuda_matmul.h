// Matmuls with an elementwise epilogue on CUDA: their schedules. Values.
#pragma once

#include <vector>

#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/decisions.h"
#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/kernels/matmul/cuda_matmul_lines.h"
#include "compiler_core/kernels/matmul/matmul_problem.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

// The unit that multiplies: tensor cores for the halves and, split into tf32 numbers, for f32.
enum class MatmulCore : uint8_t { kHalves, kF32, kThreads };
MatmulCore matmul_core(const Product& product);

// Which operands are copied past the registers.
struct ProductReads {
  bool a_async = false, b_async = false;
  template <class Size>
  static ProductReads of(const MatmulProblemOf<Size>& problem) {
    return {matmul_rows_of_a(problem).async, matmul_columns_of_b(problem).async};
  }
};

struct CudaMatmulSchedule {
  static constexpr std::string_view kTemplate = "cuda.matmul";

  int bm = 64, bn = 64, bk = 32;  // a block's tile of the product, and the depth of a step
  int warps_m = 2, warps_n = 2;   // warps of a block, along m and n
  int stages = 3;                 // steps in shared memory at once
  int splits = 1;                 // blocks that share a tile's depth
  int group = 8;                  // rows of tiles that neighbouring blocks stay in
  int cluster = 1;  // `splits`: their sums meet in a cluster's shared memory; 1: in a second launch

  static void fields(auto& f, auto& s) {
    f("bm", s.bm, multiples_of(8, 8, 256));
    f("bn", s.bn, multiples_of(16, 16, 256));
    f("bk", s.bk, multiples_of(16, 16, 128));
    f("warps_m", s.warps_m, between(1, 8));
    f("warps_n", s.warps_n, between(1, 8));
    f("stages", s.stages, between(2, 8));
    f("splits", s.splits, between(1, 64));
    f("group", s.group, between(1, 64));
    f("cluster", s.cluster, powers_of_two(1, 8));
  }
  bool go_together() const { return threads() <= 512 && (cluster == 1 || cluster == splits); }

  int threads() const { return warps_m * warps_n * 32; }
  // Dynamic shared memory of a block: the stages, later the staged sums.
  int shared_bytes(const Product& product) const;
  // Registers of a thread, roughly.
  int registers(const Product& product, const ProductReads& reads) const;
  // That shall fit an SM: as many as the registers are enough for, as far as memory lets them.
  int blocks_an_sm(const Product& product, const ProductReads& reads,
                   const CudaLimits& limits) const;
};

// Whether `schedule` can be written for products of any size: warps get whole fragments, tiles
// whole chunks. And for `problem`, whose sizes are constants.
bool fits(const CudaMatmulSchedule& schedule, const Product& product);
bool fits(const CudaMatmulSchedule& schedule, const MatmulProblem& problem);

// kUnsupported where the target has no clusters of so many blocks.
Status check_cluster(const CudaMatmulSchedule& schedule, const Target& target);

// REQUIRES: workload.family is kMatmul, its sizes are constants.
std::vector<Schedule> cuda_matmul_candidates(const Workload& workload, const Target& target);
// The same for what computes a product otherwise than as a Matmul.
std::vector<Schedule> cuda_matmul_candidates(const MatmulProblem& problem, const Target& target);

// REQUIRES: the guarantees of kMatmul. kInvalidArgument when the schedule
// does not fit the problem; kUnsupported for bool.
Result<Source> print_cuda_matmul(const Graph& graph, const CudaMatmulSchedule& schedule,
                                 const Target& target);

// Few rows of halves with weights that are read as they are stored, in 8 bits: of those, a kernel
// waits for memory.
struct CudaNarrowMatmulSchedule : CudaMatmulSchedule {
  static constexpr std::string_view kTemplate = "cuda.matmul.narrow";
};

// Whether groups of the depth, if the weights have any, are parts of steps or made of them.
bool fits_groups(const CudaMatmulSchedule& schedule, int64_t group);

// kUnsupported: what is not such a product. REQUIRES: workload.family is kMatmul.
Status check_cuda_narrow(const Workload& workload);

// REQUIRES: check_cuda_narrow() of its workload. Errors as of print_cuda_matmul().
Result<Source> print_cuda_narrow_matmul(const Graph& graph,
                                        const CudaNarrowMatmulSchedule& schedule,
                                        const Target& target);

// The most rows for which kernels of few rows are written. Such a product waits for memory.
inline constexpr int64_t kMostFewRows = 32;

// A template has this efficiency where kernels of few rows are expected to be best: so far behind
// theirs that it is tried only where they are wrong (registry.cc).
inline constexpr double kShortStreamEfficiency = 0.45;

// Few rows of halves with lines that are contiguous by depth, which go from memory into registers:
// kernels that wait for memory.
struct CudaFewRowsSchedule {
  static constexpr std::string_view kTemplate = "cuda.matmul.few_rows";

  int bm = 16, bn = 32, bk = 64;  // all rows, the columns of a block, the depth of a warp's step
  int warps = 8;                  // of a block, that share its columns
  int splits = 1;                 // blocks of a cluster, which share a tile's depth

  static void fields(auto& f, auto& s) {
    f("bm", s.bm, multiples_of(8, 8, 32));
    f("bn", s.bn, multiples_of(16, 16, 64));
    f("bk", s.bk, multiples_of(32, 32, 128));
    f("warps", s.warps, between(1, 16));
    f("splits", s.splits, powers_of_two(1, 8));
  }

  int threads() const { return warps * 32; }
  // Dynamic, of a block: every warp's sums.
  int shared_bytes(const MatmulProblem& problem) const;
  int registers(const MatmulProblem& problem) const;  // of a thread, roughly
  int blocks_an_sm(const MatmulProblem& problem, const CudaLimits& limits) const;
  // The same tiles as CudaProduct has them.
  CudaMatmulSchedule tiles() const;
};

// Whether all rows, registers and steps go together.
bool fits(const CudaFewRowsSchedule& schedule, const MatmulProblem& problem);

// Schedules, best guess first. A tile has equally many columns of each of `parts` second operands, in
// multiples of 16.
std::vector<Schedule> ranked_few_rows(const MatmulProblem& problem, const Target& target,
                                      int parts = 1);

// Whether a launch takes a few microseconds, so that what counts in a program is how it begins and ends
// beside its neighbours. Kernels of few rows are best there even where others are as quick alone: blocks
// that hold an SM's shared memory neither begin early nor let others (tests/gpu/LOG.md, "Chains of few
// rows").
bool is_short_stream(const MatmulProblem& problem);

// REQUIRES: what "cuda.matmul.few_rows" covers. Errors as of print_cuda_matmul().
Result<Source> print_cuda_few_rows(const Graph& graph, const CudaFewRowsSchedule& schedule,
                                   const Target& target);

// Products of one first operand of few rows (the family kProducts): `bn` columns of a block are those of
// all products of an output, side by side.
struct CudaJoinedFewRowsSchedule : CudaFewRowsSchedule {
  static constexpr std::string_view kTemplate = "cuda.products.few_rows";
};

// "cuda.matmul", "cuda.matmul.narrow", "cuda.matmul.few_rows", "cuda.products.few_rows".
const KernelTemplate& cuda_matmul();
const KernelTemplate& cuda_narrow_matmul();
const KernelTemplate& cuda_few_rows();
const KernelTemplate& cuda_joined_few_rows();

}  // namespace kiln
