#include "compiler_core/kernels/printing/epilogue_graph.h"

#include "compiler_core/ir/builder.h"
#include "compiler_core/passes/rewrite.h"
#include "compiler_core/plan/channels_last.h"

namespace kiln {

Result<EpilogueGraph> epilogue_graph(const Graph& workload, NodeId product, const Shape& space) {
  Rewrite rewrite(workload);
  GraphBuilder& b = rewrite.builder;
  const Node& contraction = workload.node(product);
  const NodeId result = b.input(contraction.dtype, space);
  const NodeId read = convolution_result(workload, product);
  rewrite[product] = rewrite[read] = result;
  const auto in_space = [&](NodeId id) { return b.shape(id) == space ? id : b.reshape(id, space); };
  for (NodeId id = 0; id < workload.size(); ++id) {
    const Node& node = workload.node(id);
    if (node.op == Op::kInput || id == product || id == read) continue;
    const bool operand = id == contraction.operands[0] || id == contraction.operands[1];
    std::vector<NodeId> operands = rewrite.operands(node);
    if (is_elementwise(node.op)) {
      for (NodeId& x : operands) x = in_space(x);
      rewrite[id] = b.add({node.op, node.dtype, space, std::move(operands), node.attr});
    } else {
      rewrite[id] = emit(b, node, std::move(operands));
      if (node.op == Op::kView && !operand) rewrite[id] = in_space(rewrite[id]);
    }
  }
  TRY(Graph graph, rewrite.finish());
  return EpilogueGraph{std::move(graph), result};
}

}  // namespace kiln
