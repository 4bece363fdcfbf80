#include "compiler_core/kernels/row_reduction/cuda_row_reduction.h"

#include <algorithm>

namespace kiln {
namespace {

// The maximum of x, when `sum` adds exp(x - maximum); else kInvalidNode.
NodeId maximum_below(const Graph& graph, NodeId sum) {
  const Node& reduce = graph.node(sum);
  if (reduce.op != Op::kReduceSum || reduce.dtype != DType::kF32) return kInvalidNode;
  const Node& exp = graph.node(reduce.operands[0]);
  if (exp.op != Op::kExp) return kInvalidNode;
  const Node& below = graph.node(exp.operands[0]);
  if (below.op != Op::kSub || graph.node(below.operands[1]).op != Op::kView) return kInvalidNode;
  const NodeId maximum = graph.node(below.operands[1]).operands[0];
  const bool of_it = graph.node(maximum).op == Op::kReduceMax &&
                     graph.node(maximum).operands[0] == below.operands[0];
  return of_it ? maximum : kInvalidNode;
}

}  // namespace

OnlineSums take_sums_online(const Graph& graph, ReductionPasses& of) {
  OnlineSums online;
  for (size_t p = 1; p < of.passes.size(); ++p) {
    auto &before = of.passes[p - 1].reduces, &now = of.passes[p].reduces;
    for (size_t i = 0; i < now.size();) {
      const NodeId sum = now[i], maximum = maximum_below(graph, sum);
      const bool taken = std::any_of(online.begin(), online.end(),
                                     [&](const auto& pair) { return pair.second == maximum; });
      if (taken || std::find(before.begin(), before.end(), maximum) == before.end()) {
        ++i;
        continue;
      }
      online[sum] = maximum;
      before.push_back(sum);
      now.erase(now.begin() + static_cast<std::ptrdiff_t>(i));
    }
    // A pass left without work is no loop; the last may be empty anyway.
    if (of.passes[p].empty() && p + 1 < of.passes.size())
      of.passes.erase(of.passes.begin() + static_cast<std::ptrdiff_t>(p--));
  }
  return online;
}

}  // namespace kiln
