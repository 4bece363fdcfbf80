// Column reductions (an axis that is kept is innermost) on CUDA: their schedules. Values.
//
// A block's threads stand `across` wide over a strip of across * lanes columns and `down` deep; the
// rows of threads share the rows of the matrix and then meet.
#pragma once

#include <vector>

#include "compiler_core/ir/graph.h"
#include "compiler_core/kernels/analysis/reduction_passes.h"
#include "compiler_core/kernels/column_reduction/column_extent.h"
#include "compiler_core/kernels/decisions.h"
#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

struct CudaColumnReductionSchedule {
  static constexpr std::string_view kTemplate = "cuda.column_reduction";

  // Neighbouring columns a thread. Where it does not divide the number of columns, rows are taken
  // several at a time (column_fold.h), which needs split > 0.
  int lanes = 1;
  int across = 32;  // threads across a strip
  int down = 8;     // rows of threads
  int unroll = 1;   // rows a thread has in flight
  // 0: a block goes down all rows of its strip, for all loops, in one launch. More: the rows are
  // cut into so many pieces, each streams through its rows into partial results, which another
  // phase combines.
  int64_t split = 0;
  // A thread reads its rows once and holds them in registers for all loops. Only without split.
  bool keep = false;
  // Blocks of a cluster that share a strip: each takes a part of the rows and all loops, and what
  // they found meets in their shared memory. Only without split.
  int cluster = 1;
  // The rows in flight are on their way to shared memory, not to registers: a thread asks for
  // another row with each that it takes, so that as many are in flight at all times. Not with keep.
  bool copy = false;

  int threads() const { return across * down; }

  static void fields(auto& f, auto& s) {
    f("lanes", s.lanes, powers_of_two(1, 16));
    f("across", s.across, powers_of_two(2, 1024));
    f("down", s.down, powers_of_two(1, 512));
    f("unroll", s.unroll, between(1, 16));
    f("split", s.split, between(0, 256));
    f("keep", s.keep);
    f("cluster", s.cluster, powers_of_two(1, 8));
    f("copy", s.copy);
  }
  bool go_together() const {
    return threads() >= 32 && threads() <= 1024 && !(keep && (split > 0 || copy)) &&
           !(cluster > 1 && split > 0);
  }
};

// More rows than this a thread are never kept: registers would not hold them.
inline constexpr int64_t kMostKeptRows = 32;

// Whether a reduction over a space of these sizes reads the node from memory, all of it: a full
// input, or a View of one that repeats nothing. (A broadcast comes from caches.)
bool is_streamed(const Graph& graph, const std::vector<int64_t>& sizes, NodeId id);

// REQUIRES: workload.family is kColumnReduction, its sizes are constants.
std::vector<Schedule> cuda_column_reduction_candidates(const Workload& workload,
                                                       const Target& target);

// REQUIRES: the guarantees of kColumnReduction.
Result<Source> print_cuda_column_reduction(const Graph& graph,
                                           const CudaColumnReductionSchedule& schedule,
                                           const Target& target);

// The same for sizes that have symbols: a thread a column, which is read again by every loop over it.
// It reads nothing of the schedule but threads().
Result<Source> print_cuda_symbolic_columns(const Graph& graph,
                                           const CudaColumnReductionSchedule& schedule);

// schedule.split > 0: the phases that stream through pieces of the rows (cuda_column_split.cc), of
// folded rows where `folded` has them (cuda_column_fold.h).
Source print_cuda_split_columns(const Graph& graph, const ReductionPasses& passes,
                                const ColumnExtent& extent, const Graph* folded,
                                const CudaColumnReductionSchedule& schedule);

// Blocks that shall fit an SM at once, which bounds the registers of a thread to 64.
int column_blocks_an_sm(int threads);

// "cuda.column_reduction".
const KernelTemplate& cuda_column_reduction();

}  // namespace kiln
