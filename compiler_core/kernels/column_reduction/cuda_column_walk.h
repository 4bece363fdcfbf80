// ColumnWalk: the text of how a block of a column reduction stands over its strip of columns, goes
// down the rows, and combines what its rows of threads found. What both ways of printing column
// reductions share. One owner, one thread; keeps references.
//
// Names in the printed code: `row_begin`, `row_end` the rows of the block's piece (row_end 0 in
// threads past the last column); `j` the first column of the thread; `mine` whether that lies in
// the matrix (else j is the last vector's, so that whatever is read there exists); i{axis} the
// coordinates of the group; acc{N} and result{N} as in accumulators.h, without the vector's number.
#pragma once

#include "compiler_core/kernels/analysis/reduction_passes.h"
#include "compiler_core/kernels/column_reduction/column_extent.h"
#include "compiler_core/kernels/column_reduction/cuda_column_reduction.h"
#include "compiler_core/kernels/printing/expression.h"

namespace kiln {

class ColumnWalk {
 public:
  // Blocks walk `piece` rows each (the last ones of a group perhaps fewer), from row `begin` of the
  // group on. `vector` is LANES: of more than schedule.lanes, the first ones live.
  ColumnWalk(const Graph& graph, const ColumnExtent& extent,
             const CudaColumnReductionSchedule& schedule, int64_t piece, int vector,
             int64_t begin = 0);

  ExpressionPrinter& printer() { return printer_; }

  // Declares where the thread stands; the head of a kernel. A block's number says group, piece,
  // strip, the last of them fastest.
  std::string position() const;
  // One loop over the rows: declares and fills acc{N}, stores the full outputs.
  std::string pass(const ReductionPasses::Pass& pass);
  // The reduced outputs, by the first row of threads. REQUIRES: results are bound.
  std::string reduced_outputs(const std::vector<int>& outputs);
  int64_t blocks() const { return extent_.groups * pieces_ * strips_; }
  // Bytes at the beginning of shared memory for the rows that are on their way.
  int copy_bytes() const;

 private:
  const Node& node(NodeId id) const { return graph_.node(id); }
  void batch(const ReductionPasses::Pass& pass, bool guarded);
  std::string copying_loop(const ReductionPasses::Pass& pass);
  std::vector<NodeId> copied_leaves(const ReductionPasses::Pass& pass);
  void find_copied(NodeId id, const std::vector<Index>& at, std::vector<bool>& visited,
                   std::vector<NodeId>& found);
  std::string row_copies(const std::vector<NodeId>& leaves, int ahead);
  void row(const ReductionPasses::Pass& pass, const std::vector<Index>& at,
           const std::string& condition);
  std::vector<Index> indices(int u, bool guarded);
  void load_leaves(NodeId id, const std::vector<Index>& at, std::vector<bool>& visited);
  std::string kept_rows() const;
  int ring_bytes(NodeId id) const;
  int rows_at_once() const { return schedule_.keep ? kept_ : schedule_.unroll; }

  const Graph& graph_;
  const ColumnExtent& extent_;
  const CudaColumnReductionSchedule schedule_;
  const int vector_;
  const int64_t begin_, rows_;  // of a group that are walked
  const int64_t piece_, pieces_, strips_;
  const int kept_;        // rows a thread keeps
  const bool even_rows_;  // every piece is whole batches of every thread
  const bool even_strips_;
  ExpressionPrinter printer_;
};

// acc{N}, set to the identity.
std::string declare_accumulators(const Graph& graph, std::span<const NodeId> reduces);

// Blocks of threads, `across` wide, that combine their rows of threads through shared memory, from
// its byte `offset` on.
struct ThreadRows {
  int across = 32, threads = 256, lanes = 4, cluster = 1;
  int offset = 0;

  // acc{N} of all rows of threads into result{N} of each: two barriers for all of `reduces`.
  // `again`: another fold of this kernel may still be reading the shared memory.
  // In a cluster, no block ends before the others have read what they need of it.
  std::string fold(const Graph& graph, std::span<const NodeId> reduces, bool again) const;
  int shared_bytes(const Graph& graph, std::span<const NodeId> reduces) const;
};

// "const index_t i{axis} = ..": the coordinates along `axes`, outermost first, of the flat index
// `flat`; each followed by `suffix`.
std::string column_coordinates(const ColumnExtent& extent, const std::string& flat,
                               const std::vector<size_t>& axes, const std::string& suffix = "");

}  // namespace kiln
