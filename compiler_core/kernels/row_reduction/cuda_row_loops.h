// RowLoops: the text of the loops over one row: what is read once and where it waits, each loop's
// body, how the threads of the row fold their accumulators. row_reduction.cc puts kernels around
// it.
//
// The threads that share a row are its members. `member` (a number below `step`), `row`, and of a
// cut row `begin` and `end` are known where the text stands; vector v of a row is elements
// [v * LANES, (v + 1) * LANES), less `phase` where it is peeled (phase_text), and a member takes
// v = member, member + step, ...
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/row_reduction/cuda_row_reduction.h"
#include "compiler_core/kernels/row_reduction/cuda_row_shape.h"

namespace kiln {

// The problem and the schedule, as the functions of a kernel share them.
struct RowLayout {
  const Graph& graph;
  CudaRowReductionSchedule schedule;
  RowShape shape;
  ReductionPasses passes;
  Shape sizes;  // of the space's axes
  size_t batch_rank = 0;
  int64_t step = 1;           // members of a row
  std::string row_vectors;    // the last one may be short
  int64_t vectors = 1;        // of a member at a time: the whole row's, unless it is reread
  int64_t pieces = 1;         // a row is cut into
  int64_t piece_vectors = 1;  // of each
  OnlineSums online;          // taken so: a row costs less to look at once

  RowLayout(const Graph& graph, const CudaRowReductionSchedule& schedule);
  bool rereads() const { return schedule.storage == RowStorage::kReread; }
  bool is_cut() const { return pieces > 1; }
  bool peels() const { return shape.peels(schedule.lanes); }
};

// Where the vectors of a row begin and end. A row of peeled vectors (see RowShape::peels) begins
// `phase` elements past an aligned place; its vectors stand on aligned places, and the first and
// the last have dead lanes.
//
// Declares `phase` of `row`; "" where vectors begin with their row.
std::string phase_text(const RowLayout& layout);

// The statements of vector `vector` (an expression) of a row, lane 0 of which is element `first`:
// declares `first`, then prints `body` for whole vectors and, where there may be others, once more
// for those, with `live` as each has it. `u`, a variable of the loop around it, counts a member's
// vectors, from 0 for those that may begin a row. `coordinates`: statements after `first`.
std::string vector_text(const RowLayout& layout, const std::string& vector,
                        const std::string& first, const std::string& coordinates,
                        const std::string& body, int indent);

class RowLoops {
 public:
  // Loops [first, last) of the passes. `layout` must outlive this.
  RowLoops(const RowLayout& layout, size_t first, size_t last);

  std::string text();  // statements of a row, indented by 2; once
  // The same for a block that goes through groups of rows; `row_of` declares `row` of a group.
  std::string walk_text(const std::function<std::string(const std::string& group)>& row_of);
  // After text(): what stands before it, and the shared memory it uses.
  std::string head() { return printer_.take(Level::kKernel, 2); }
  int shared_bytes() const { return static_cast<int>(shared_bytes_); }

 private:
  const Node& node(NodeId id) const { return layout_.graph.node(id); }
  bool is_cut() const { return layout_.is_cut(); }
  bool is_online(NodeId reduce) const;  // it is one of a maximum and its sum
  std::string element_type(NodeId id) const;
  // Declares i{begin}.. i{end - 1} from the flat index `flat`.
  std::string coordinates(const std::string& flat, size_t begin, size_t end, int indent) const;
  std::vector<NodeId> reads_of(const ReductionPasses::Pass& pass) const;

  // Reads a member's vectors from `from` on, and says where they wait.
  std::string hold(const std::vector<NodeId>& reads, const std::string& from, int indent);
  // `before` and `after`: statements of every u, live or not.
  std::string each_vector(const std::string& body, const std::string& from, int indent,
                          const std::string& before = "", const std::string& after = "") const;
  std::string loops();  // all of them, on the row that is held
  std::string loop(size_t p);
  std::string loop_body(const ReductionPasses::Pass& pass);
  std::string fold(NodeId reduce);
  std::string fold_online(NodeId maximum, NodeId sum);
  std::string result(NodeId reduce, const std::string& value, const std::string& special);
  std::string partials(NodeId id) const;
  std::string read_partials(size_t p);
  std::string reduced_outputs();
  std::string shared(int64_t bytes);  // an expression: the address of so many bytes

  const RowLayout& layout_;
  ExpressionPrinter printer_;
  const size_t first_, last_;
  std::vector<Index> at_, at_reduced_;
  int64_t shared_bytes_ = 0;
  int64_t copy_groups_ = 0;  // under way: the next loop waits for each where it comes to it
};

}  // namespace kiln
