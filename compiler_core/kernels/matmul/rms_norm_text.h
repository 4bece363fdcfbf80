// RmsNormText: how CUDA kernels of few rows (device/matmul_few_rows.cuh) multiply rows that a norm scales
// (plan/rms_norm.h), as C text. Keeps references to the graph and the norm, which must outlive it.
#pragma once

#include <optional>
#include <string>

#include "compiler_core/ir/graph.h"
#include "compiler_core/plan/rms_norm.h"

namespace kiln {

class RmsNormText {
 public:
  // Elements of a chunk of 16 bytes of rows: a vector has as many lanes.
  static constexpr int kLanes = 8;

  // `rms_norm`: of `graph`; nullopt: rows are multiplied as they lie in memory.
  RmsNormText(const Graph& graph, const std::optional<RmsNorm>& rms_norm)
      : graph_(graph), rms_norm_(rms_norm) {}

  // Members of the type A: norm_pieces, and times() where a norm scales the rows.
  std::string members() const;
  // The input that columns of the rows are multiplied with, if any is.
  std::optional<int> input() const;
  // A pointer to that for the first column; "nullptr".
  std::string pointer() const;

 private:
  bool is_one_product() const;
  std::string print_times() const;

  const Graph& graph_;
  const std::optional<RmsNorm>& rms_norm_;
};

// Pieces of 16 bytes of what 8 columns of such rows are multiplied with.
int norm_pieces(const RmsNorm& rms_norm);

}  // namespace kiln
