#include "compiler_core/tune/matmul_problem.h"

#include <algorithm>

#include "compiler_core/base/check.h"

namespace kiln {
namespace {

MatmulOperand operand_of(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  std::vector<Dim> strides = contiguous_strides(node.shape);
  MatmulOperand operand;
  const Node* source = &node;
  if (node.op == Op::kView) {
    const auto& view = std::get<ViewAttr>(node.attr);
    strides = view.strides;
    operand.offset = view.offset.constant();
    source = &graph.node(node.operands[0]);
  }
  CHECK(source->op == Op::kInput, "a matmul's operands are views of inputs");
  operand.input = std::get<InputAttr>(source->attr).index;
  for (size_t axis = 0; axis + 2 < strides.size(); ++axis)
    operand.batch_strides.push_back(strides[axis].constant());
  operand.row_stride = strides[strides.size() - 2].constant();
  operand.column_stride = strides.back().constant();
  return operand;
}

}  // namespace

bool MatmulOperand::is_shared() const {
  return std::all_of(batch_strides.begin(), batch_strides.end(),
                     [](int64_t stride) { return stride == 0; });
}

MatmulProblem MatmulProblem::of(const Graph& workload) {
  const auto nodes = workload.nodes();
  const auto product = std::find_if(nodes.begin(), nodes.end(),
                                    [](const Node& node) { return node.op == Op::kMatmul; });
  CHECK(product != nodes.end(), "a matmul workload has a matmul");
  MatmulProblem problem;
  problem.product = static_cast<NodeId>(product - nodes.begin());
  problem.stored = workload.node(product->operands[0]).dtype;
  problem.result = product->dtype;
  const std::vector<int64_t> sizes = constant_sizes(product->shape);
  problem.batch.assign(sizes.begin(), sizes.end() - 2);
  for (const int64_t size : problem.batch) problem.batches *= size;
  problem.m = sizes[sizes.size() - 2];
  problem.n = sizes.back();
  problem.k = workload.node(product->operands[0]).shape.back().constant();
  problem.a = operand_of(workload, product->operands[0]);
  problem.b = operand_of(workload, product->operands[1]);
  return problem;
}

}  // namespace kiln
