// The programs that kernel_bench times, each with what a user would run instead.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "compiler_core/base/tensor.h"
#include "compiler_core/ir/graph.h"

namespace kiln::bench {

struct KernelCase {
  std::string name, shape;
  Graph graph;
  double flops = 0;     // 0: memory-bound, counted in bytes
  std::string against;  // "oneDNN", "plain loop"
  // A ready-made call that reads `inputs` (the graph's, in order) and writes `outputs`; both
  // outlive it.
  std::function<std::function<void()>(std::span<Tensor> inputs, std::span<Tensor> outputs)>
      reference;
};

// All of them, or those whose name contains `filter`.
Result<std::vector<KernelCase>> kernel_cases(std::string_view filter);

}  // namespace kiln::bench
