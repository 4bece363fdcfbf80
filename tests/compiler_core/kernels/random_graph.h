// Random workloads for property tests: pointwise graphs and reductions with broadcasts, strided,
// transposed and reversed views, halves, integers and bools, several outputs. Operations that jump
// (floor, comparisons) are applied to inputs only, so that rounding can't change an answer.
#pragma once

#include <random>

#include "compiler_core/ir/builder.h"

namespace kiln::testing {

class RandomGraph {
 public:
  explicit RandomGraph(uint32_t seed) : random_(seed) {}

  // A size that is known only at run time, at least 1. REQUIRES: called before the graph is made.
  Dim symbol(int64_t hint) { return Dim::symbol(builder_.symbol({1, 4096}, hint)); }

  // Every output has shape `space`. `movable`: Pads and Concats too.
  Graph pointwise(const Shape& space, int operations, bool movable);
  // Reductions of `space` over [begin, end), of one another too, with full and reduced outputs.
  Graph reduction(const Shape& space, int begin, int end);

  int64_t pick(int64_t least, int64_t greatest) {
    return std::uniform_int_distribution<int64_t>(least, greatest)(random_);
  }

 private:
  struct Value {
    NodeId id;
    bool exact;  // an input's own value
  };

  // A fresh input seen at `space` through a random view.
  NodeId leaf(DType dtype, const Shape& space);
  // The same, brought to `dtype` from some other dtype now and then.
  Value leaf_as(DType dtype, const Shape& space);
  NodeId moved(DType dtype, const Shape& space);  // a Pad or Concat of leaves
  Value unary(Value x);
  Value combine(Value a, Value b, Value c);
  NodeId through_half(NodeId x);

  std::mt19937 random_;
  GraphBuilder builder_;
};

}  // namespace kiln::testing
