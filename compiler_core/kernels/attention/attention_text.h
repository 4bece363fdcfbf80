// AttentionText: what CUDA kernels of attention say of their workload, whichever way they multiply.
// Keeps a reference to the graph, which must outlive it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/kernels/attention/attention_problem.h"
#include "compiler_core/kernels/attention/computed_operand_text.h"
#include "compiler_core/kernels/printing/expression.h"

namespace kiln {

// What `printer` has for a function of a struct: all levels, the outermost first.
std::string statements(ExpressionPrinter& printer);

// Declares batch0, ..., the coordinates of `batch` in axes of these sizes.
std::string print_batch_coordinates(const std::vector<Dim>& batch);

class AttentionText {
 public:
  // `rows`: queries of a block; `keys`: of a tile.
  AttentionText(const Graph& graph, int64_t rows, int64_t keys)
      : AttentionText(graph, AttentionProblem::of(graph), rows, keys) {}
  // `problem`: of `graph`.
  AttentionText(const Graph& graph, AttentionProblem problem, int64_t rows, int64_t keys);

  const AttentionProblem& problem() const { return problem_; }
  int lanes() const { return lanes_; }
  // Queries of a batch in blocks: C text.
  const std::string& row_blocks() const { return row_blocks_; }
  int64_t rows() const { return rows_; }
  // Whether scores() or within() reads an input: a mask or a bias.
  bool scores_read() const;

  // The types Query, Key, Value and Problem.
  std::string print_problem() const;

  // Declares `problem`, with its open sizes.
  std::string print_sizes() const;
  // Declares `query`, `key`, `value`: pointers, or what ComputedOperandText declares.
  std::string print_pointers() const;
  // Declares scores(sums, row, column) and within(...), where `sums` are values of the node `sums`.
  std::string print_scores(NodeId sums) const;
  // Declares store_result(value, sum, row, column).
  std::string print_store() const;
  // Declares store_log_sum(log_sum, row), which does nothing where nobody wants it.
  std::string print_store_log_sum() const;

 private:
  bool has_within() const { return problem_.mask.within != kInvalidNode; }
  bool is_async(const AttentionOperand& operand) const;
  std::string print_operand(std::string_view name, const AttentionOperand& operand) const;
  std::string print_pointer(std::string_view name, const AttentionOperand& operand) const;
  ComputedOperandText computed(const AttentionOperand& operand) const;
  // How many neighbouring scores are computed at once: 1 where vectors are as wide as chunks of operands.
  int score_lanes() const { return problem_.computes_operands() ? 1 : lanes_; }
  Index batch_index(size_t axis) const;
  std::vector<Index> place(const Dim& width, int lanes) const;
  std::string print_score(std::string_view name, NodeId scores, NodeId sums) const;

  const Graph& graph_;
  const int64_t rows_, keys_;
  const AttentionProblem problem_;
  const int lanes_;
  const std::string row_blocks_;
};

}  // namespace kiln
