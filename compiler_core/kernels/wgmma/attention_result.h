// How kernels of attention on wgmma store what they give. Keeps references to the graph and its text,
// which must outlive it.
#pragma once

#include <string>

#include "compiler_core/kernels/attention/attention_text.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"

namespace kiln {

class AttentionResult {
 public:
  AttentionResult(const Graph& graph, const AttentionText& text);

  // The parameter `out`, where the copy engine stores results.
  void add_map(KernelParameters& parameters) const;
  // The type Out and store_boxes(), where the copy engine stores results.
  std::string print_out() const;
  // Declares end_with(rows, query, row, own_row) of wgmma_attention.cuh, in a kernel that declares `problem`
  // and `batch`.
  std::string print_end() const;

 private:
  bool has_log_sums() const { return problem_.outputs.log_sums >= 0; }
  AttentionOperand output() const;

  const Graph& graph_;
  const AttentionText& text_;
  const AttentionProblem& problem_;
  const bool boxes_;  // the copy engine stores results
};

}  // namespace kiln
