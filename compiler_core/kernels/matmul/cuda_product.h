// A CUDA kernel of tiles of one matrix product after another, in the vocabulary of
// device/matmul.cuh: what matmuls and convolutions print. They differ in where operands are read
// from and in what becomes of a sum. Pure functions.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/kernels/matmul/cuda_matmul.h"
#include "compiler_core/kernels/printing/index.h"

namespace kiln {

// The epilogue of LANES results.
struct EpilogueText {
  std::string once;    // needs `batch`
  std::string vector;  // needs `sums`, `row`, `column`
};

// How an epilogue differs from one that reads and stores for itself.
struct EpilogueEnds {
  bool returns = false;            // the vector's first word, Packed, instead of storing it
  NodeId addend = kInvalidNode;    // an input or View of one that waits in Packed `addend`
  std::vector<NodeId> terms = {};  // values that wait in `terms.term[i]`, in f32
  // The norm that scales sums row by row; the squares of `tile_row` are in shared memory
  // (matmul_few_rows.cuh). Null: none does.
  const RmsNorm* rms_norm = nullptr;
};

// An input of halves, or a View of one, in the results' shape, that is read at its own place and nowhere
// else, whose strides have no symbols and that `suits`: it can be on its way while a block multiplies.
// kInvalidNode: there is none.
NodeId find_addend(const Graph& graph, const std::function<bool(const MatmulOperand&)>& suits);

// The epilogue of `graph`, where `product` stands for the sums; its output is stored at `at`.
// `once`: statements that declare what `at` needs.
EpilogueText product_epilogue(const Graph& graph, NodeId product, DType result,
                              const std::vector<Index>& at, std::string once,
                              const EpilogueEnds& ends = {});

// The same of a matmul: the sums of LANES columns from `column` on, of `row` of `batch`.
EpilogueText matmul_epilogue(const Graph& graph, const SizedMatmul& problem, int lanes,
                             const EpilogueEnds& ends = {});

// The epilogue of output `position` of `graph`, [rows, columns] computed from `products`, of which the
// sums of LANES columns from `column` on are `sums0`, `sums1`.
EpilogueText joined_epilogue(const Graph& graph, int position, const std::vector<NodeId>& products,
                             int lanes, const EpilogueEnds& ends = {});

// Results a vector: as many as fit 16 bytes of `graph`'s first output and divide its row of
// `columns`, so that no vector is only partly there.
int product_lanes(const Graph& graph, const Dim& columns);

// Declares Value, and the Tiling of a kernel of `types`.
std::string print_tiling(const Product& types, const CudaMatmulSchedule& schedule);

// Declares `begin` and `end`, the steps of the depth that block `split` of `schedule.splits` takes.
std::string print_steps(const Dim& depth, const CudaMatmulSchedule& schedule);

// C text: whether all of those inputs may be read early, as parameters ready`input` say.
template <class Inputs>
std::string are_ready(const Inputs& inputs) {
  std::string text;
  for (const int input : inputs)
    text += (text.empty() ? "ready" : " && ready") + std::to_string(input) + " != 0";
  return text;
}

struct CudaProduct {
  const Graph& graph;
  CudaMatmulSchedule schedule;
  Product types;
  ProductReads reads;
  Dim batches, m, n, k;  // constants where schedule.splits > 1
  int lanes = 1;
  Grid grid;
  std::vector<std::string_view> device;  // files, beside mma.cuh and matmul.cuh
  std::string operands;                  // the types A and B
  std::string loader;                    // what needs Tiling too
  std::string pointers;                  // declares `a` and `b` of `batch`
  std::string shift;                     // " + shift": what a's rows are numbered from, if not 0
  // A call that leaves a tile's sums in shared memory, where it is not multiply_tile(), and what it
  // needs. `names_sums`: it declares `tile_sums`, which gives the sums of this block's vectors
  // (tile_sums.cuh), instead.
  std::string multiply = {};
  bool names_sums = false;
  // Inputs that the call reads before the kernel in front of this one has ended, where ready`input`
  // says that it may: it waits for that one itself.
  std::vector<int> early_inputs = {};
  // A block's dynamic shared memory, and the blocks that shall fit an SM. 0: what `schedule` says.
  int shared_bytes = 0, blocks_an_sm = 0;
  // In f32, products of infinities are done again: a call that gives LANES sums from shared memory,
  // less its arguments, and one that computes a sum alone.
  std::string_view repaired_sums, plain_sum;
  EpilogueText epilogue;
};

Source print_cuda_product(const CudaProduct& product, const Target& target);

}  // namespace kiln
