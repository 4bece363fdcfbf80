// The gradient of attention as a graph, and its kernels where a target has a template for them. For the tests
// of the kernels and of the pattern.
#pragma once

#include "compiler_core/plan/plan.h"

namespace kiln::testing {

struct GradientGraph {
  DType dtype = DType::kBF16;
  int64_t batch = 2, heads = 3, rows = 70, keys = 80, depth = 64, width = 64;
  bool causal = false;
  bool additive = false;      // a mask of [rows, keys]
  bool heads_inside = false;  // operands and results are [batch, tokens, heads, ...] in memory
  bool reads_scores = false;  // the weights are a result as well
  int layers = 1;             // with inputs of their own, under one mask
};

// As aten_attention.cc writes it: the gradients of query, key and value.
Graph gradient_graph(const GradientGraph& wanted);
// Its plan for an H100.
Plan gradient_plan(const GradientGraph& wanted);

}  // namespace kiln::testing
