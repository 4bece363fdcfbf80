// Row reductions (the reduced axes innermost) on CUDA: their schedules. Values.
#pragma once

#include <map>
#include <vector>

#include "compiler_core/kernels/analysis/reduction_passes.h"
#include "compiler_core/kernels/decisions.h"
#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

// Where a row waits between the loops over it. Persisted; never renumbered.
enum class RowStorage : uint8_t {
  kRegisters = 0,  // read once, every load of a thread issued before the first is used
  kShared = 1,     // read once, copied to shared memory past the registers
  kReread = 2,     // read again by every loop
};

struct CudaRowReductionSchedule {
  static constexpr std::string_view kTemplate = "cuda.row_reduction";

  int lanes = 1;      // elements a vector
  int threads = 128;  // of a block that work on one row: a power of two
  int rows = 1;       // a block works on at once; threads * rows are whole warps
  int cluster = 1;    // blocks that share a row, when rows is 1
  RowStorage storage = RowStorage::kReread;
  int vectors = 1;  // of kReread: vectors a thread loads before it uses the first
  ReductionPasses::Keep keep = ReductionPasses::Keep::kNothing;  // in registers, of kRegisters
  bool stream = false;  // what is stored is the first to leave the L2
  int blocks = 1;       // that must fit an SM at once: bounds a thread's registers
  int64_t split = 1;    // blocks that share a row through memory, one phase a loop; of kReread
  // Blocks in all, each of which goes through rows and reads one while it works on the one before;
  // 0: a block for each row, or each `rows`. Of kRegisters without a cluster.
  int64_t walk = 0;

  static void fields(auto& f, auto& s) {
    f("lanes", s.lanes, powers_of_two(1, 16));
    f("threads", s.threads, powers_of_two(1, 1024));
    f("rows", s.rows, between(1, 1024));
    f("cluster", s.cluster, powers_of_two(1, 8));
    f("storage", s.storage, between(0, 2));
    f("vectors", s.vectors, between(1, 16));
    f("keep", s.keep, between(0, 2));
    f("stream", s.stream);
    f("blocks", s.blocks, between(1, 32));
    f("split", s.split, between(1, 65536));
    f("walk", s.walk, between(0, 65536));
  }
  bool go_together() const;
};

// REQUIRES: workload.family is kRowReduction, its sizes are constants.
std::vector<Schedule> cuda_row_reduction_candidates(const Workload& workload, const Target& target);

// REQUIRES: the guarantees of kRowReduction.
Result<Source> print_cuda_row_reduction(const Graph& graph,
                                        const CudaRowReductionSchedule& schedule,
                                        const Target& target);

// Sums of exp(x - the maximum of x) that one loop takes together with that maximum (M. Milakov,
// N. Gimelshein, "Online normalizer calculation for softmax", 2018): each such sum and its maximum.
using OnlineSums = std::map<NodeId, NodeId>;

// Moves these sums into the loop of their maximum; a loop that has no work left is gone, but for
// the last one. Schedules and code generation read the same answer. REQUIRES: `passes` are the
// graph's, and nothing kept is read by the sums.
OnlineSums take_sums_online(const Graph& graph, ReductionPasses& passes);

// "cuda.row_reduction".
const KernelTemplate& cuda_row_reduction();

}  // namespace kiln
