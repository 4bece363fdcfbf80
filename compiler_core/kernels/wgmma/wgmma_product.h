// WgmmaProduct: a kernel of wgmma_matmul.cuh but for how its operands come into shared memory: what
// matmuls and convolutions print. Keeps references to the graphs, which must outlive it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/kernels/matmul/cuda_product.h"
#include "compiler_core/kernels/wgmma/wgmma_matmul.h"

namespace kiln {

// How the operands come.
struct WgmmaOperands {
  std::vector<std::string_view> device;  // files behind wgmma_matmul.cuh
  std::string types;                     // the types A and B
  std::string source;                    // a C expression of the kernel: what brings them
  std::vector<std::pair<std::string_view, TensorMap>> maps;  // a parameter each: "a" is `a_map`
  bool a_inner = true, b_inner = true;  // whether tiles in shared memory are contiguous by depth
  int64_t steps = 1;                    // of the depth
  std::string scales = {};     // declares `scales`, of steps, in the kernel; empty: there are none
  int copying_registers = 24;  // of a thread that brings them
  // Blocks among which all steps of all tiles are divided, who meet at the C expression `meeting`
  // (SharedTiles::); none: each block has whole tiles.
  int64_t sharing_blocks = 0;
  std::string meeting = {};
  // They wait for the kernel in front themselves, as the kernel does where it ends.
  bool waits = false;
  // Likewise, and before that they read this input where ready`input` says that they may; all others
  // wait, too.
  std::optional<int> early_input = {};
};

// Tiles of rows in runs (wgmma_picked.cuh) instead of batches: at most so many rows of tiles.
struct WgmmaRuns {
  int64_t most_row_tiles = 0;
};

// How many results there are: rows of each batch, in batch axes. Rows, or the first of those, may have symbols.
struct ProductSizes {
  Dim rows = 0;
  std::vector<Dim> batch = {};

  static ProductSizes of(const MatmulProblem& problem);
  Dim batches() const;
  bool is_constant() const { return rows.is_constant() && batches().is_constant(); }
};

// Declares `sizes` of wgmma_matmul.cuh, and ends blocks without a tile: where they have symbols, there may be
// fewer tiles than blocks.
std::string print_sizes(const ProductSizes& sizes);

class WgmmaProduct {
 public:
  // `epilogue`: `workload`, or its epilogue_graph(); `problem` has its product, batch axes and sizes,
  // and says what is stored. Where `sizes` have symbols, it has as many as measured.
  WgmmaProduct(const Graph& workload, const Graph& epilogue, const WgmmaMatmulSchedule& schedule,
               const MatmulProblem& problem, ProductSizes sizes, const Target& target,
               std::optional<WgmmaRuns> runs = std::nullopt);

  const ProductSizes& sizes() const { return sizes_; }

  // One phase, "multiply".
  Source print(const WgmmaOperands& operands) const;

  // A map of sizes, strides and a box of two axes gets its batch axes and all else.
  TensorMap with_batches(TensorMap map, const MatmulOperand& operand) const;
  // Declares `at`, where a box lies: [`inner`, batch axes...].
  std::string print_place(std::string inner, const MatmulOperand& operand) const;

 private:
  static NodeId boxed_addend(const Graph& graph, NodeId product);
  MatmulOperand addend() const;
  MatmulOperand output() const;
  bool is_open() const { return !sizes_.is_constant(); }
  Dim all_rows() const;
  int64_t blocks(const WgmmaOperands& operands) const;
  TensorMap map_of_boxes(const MatmulOperand& operand) const;
  std::string print_tiling(const WgmmaOperands& operands) const;
  std::string print_boxes() const;
  std::string print_body(const WgmmaOperands& operands, const std::vector<NodeId>& terms) const;
  // The call that multiplies; what declares `ending` in front of it, where results are stored as rows
  // and as boxes.
  std::string print_call(const WgmmaOperands& operands) const;
  std::string print_row_ending(const EpilogueText& epilogue) const;
  std::string print_box_ending(const EpilogueText& epilogue,
                               const std::vector<NodeId>& terms) const;
  // The column_terms() that a block computes before its first tile; empty where it has no room for them.
  std::vector<NodeId> terms_of(const WgmmaOperands& operands) const;

  const Graph& graph_;
  const Graph& epilogue_;
  const WgmmaMatmulSchedule schedule_;
  const MatmulProblem problem_;
  const ProductSizes sizes_;
  const bool in_runs_;
  const bool boxes_;     // results are stored by the copy engine
  const NodeId addend_;  // which it brings too
  const int lanes_;
  const int64_t batches_, row_tiles_, column_tiles_, sms_;  // of open sizes: as measured
};

}  // namespace kiln
