// MatmulProblem: a matmul workload in numbers: what schedules are chosen by and code is printed
// from. A SizedMatmul is the same of a workload whose sizes may have symbols. Values.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler_core/ir/graph.h"
#include "compiler_core/plan/dequantised.h"
#include "compiler_core/plan/rms_norm.h"
#include "compiler_core/plan/workload.h"

namespace kiln {

// How an operand lies in the input it is read from: element strides, of the matrix's rows and
// columns and of each batch axis.
template <class Size>
struct MatmulOperandOf {
  int input = 0;  // position among the workload's inputs
  Size offset = 0;
  std::vector<Size> batch_strides;
  Size row_stride = 0;        // of a: along m; of b: along k
  Size column_stride = 0;     // of a: along k; of b: along n
  DType dtype = DType::kF32;  // in memory
  // The input that names a matrix for each batch, of an operand that an index picks
  // (plan/picked_products.h); -1: of any other.
  // Its batch stride leads from one of the table's `matrices` to the next.
  int picked_by = -1;
  Size matrices = 1;
  // The arithmetic between what memory has and what is multiplied (plan/dequantised.h), if any.
  std::optional<Dequantised> dequantised = std::nullopt;

  // The same matrix for every batch: packed once.
  bool is_shared() const;

  // REQUIRES: node `id` is an input, or a View of one, of two axes at least, or picked from such a
  // one; sizes as below.
  static MatmulOperandOf of(const Graph& graph, NodeId id);
  // An operand of packed bytes or words. Its strides are in bytes; that of the depth leads from one byte
  // to the next; the other one, of words, from 8 columns to the next 8. REQUIRES: operand 1, whose bytes
  // or words are an input.
  static MatmulOperandOf of_packed(const Graph& graph, const Dequantised& packed);
};

struct Product {
  NodeId product = kInvalidNode;  // the Matmul or Convolution node
  DType stored = DType::kF32;     // of both operands; in memory, where nothing widens them
  DType result = DType::kF32;     // of the product: the accumulator
  std::optional<DType> narrow =
      std::nullopt;            // of the second operand in memory, where that alone is widened
  bool narrow_groups = false;  // and groups of the depth have scales of their own
  bool narrow_shift = false;   // and something is added behind the scale
  int in_byte = 1;             // so many elements of it lie in a byte
  int word_depth = 0;          // of those in words (plan/four_bits.h)
};

template <class Size>
struct MatmulProblemOf : Product {
  std::vector<Size> batch;  // sizes of the batch axes
  Size batches = 1;         // their product
  Size m = 0, n = 0, k = 0;
  MatmulOperandOf<Size> a, b;
  std::optional<RmsNorm> rms_norm = std::nullopt;  // where a norm scales the rows of a

  // REQUIRES: `workload` keeps the rules of kMatmul; for a Size of int64_t, its sizes are
  // constants.
  static MatmulProblemOf of(const Graph& workload);
};

// kUnsupported where an operand is not multiplied as it lies in memory, is picked, or scaled by a norm: for
// kernels that read operands as they lie.
// REQUIRES: workload.family is kMatmul.
Status check_operands_are_stored(const Workload& workload);

using MatmulOperand = MatmulOperandOf<int64_t>;
using MatmulProblem = MatmulProblemOf<int64_t>;
using SizedMatmulOperand = MatmulOperandOf<Dim>;
using SizedMatmul = MatmulProblemOf<Dim>;

// The same in numbers, where none of them has symbols.
std::optional<MatmulOperand> constant_operand(const SizedMatmulOperand& operand);

// A problem in numbers of which the rows, without batch axes, or the first batch axis may have symbols: there
// are as many as measured then (plan/sizes.h). kUnsupported: another size has, or a stride.
// REQUIRES: `workload` keeps the rules of kMatmul.
Result<MatmulProblem> measured_problem(const Graph& workload);

}  // namespace kiln
