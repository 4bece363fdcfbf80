// MatmulProblem: a matmul workload in numbers: what schedules are chosen by and code is printed
// from. A value.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln {

// How an operand lies in the input it is read from: element strides, of the matrix's rows and
// columns and of each batch axis.
struct MatmulOperand {
  int input = 0;  // position among the workload's inputs
  int64_t offset = 0;
  std::vector<int64_t> batch_strides;
  int64_t row_stride = 0;     // of a: along m; of b: along k
  int64_t column_stride = 0;  // of a: along k; of b: along n

  // The same matrix for every batch: packed once.
  bool is_shared() const;
};

struct MatmulProblem {
  NodeId product = kInvalidNode;  // the Matmul node
  DType stored = DType::kF32;     // of both operands, in memory
  DType result = DType::kF32;     // of the product: the accumulator
  std::vector<int64_t> batch;     // sizes of the batch axes
  int64_t batches = 1;            // their product
  int64_t m = 0, n = 0, k = 0;
  MatmulOperand a, b;

  // REQUIRES: `workload` keeps the rules of kMatmul, its sizes are constants.
  static MatmulProblem of(const Graph& workload);
};

}  // namespace kiln
