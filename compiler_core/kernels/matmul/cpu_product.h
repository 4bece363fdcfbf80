// The part that CPU kernels of matmuls and of convolutions share: the struct Epilogue that
// device/matmul.h hands every vector of sums. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "compiler_core/ir/graph.h"
#include "compiler_core/kernels/printing/index.h"

namespace kiln {

// Bytes of a sum that becomes a `result`, and so of an element in packed panels.
int64_t sum_bytes(DType result);

struct CpuEpilogue {
  const Graph& workload;  // its arguments are the kernel's
  const Graph& graph;     // the arithmetic: `product` stands for the sums, its output lies at `at`
  NodeId product = kInvalidNode;
  DType result = DType::kF32;
  std::vector<Index> at = {};
  // A member beside the arguments: "const int64_t*", "dims". Empty: none.
  std::string type = {}, name = {};
  // Statements in front of the sums and behind them, for what `at` needs of `batch`.
  std::string before = {}, behind = {};

  std::string text() const;
};

}  // namespace kiln
