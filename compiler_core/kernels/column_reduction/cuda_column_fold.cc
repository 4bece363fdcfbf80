#include "compiler_core/kernels/column_reduction/cuda_column_fold.h"

#include <algorithm>
#include <numeric>

#include "compiler_core/ir/builder.h"

namespace kiln {
namespace {

class Folding {
 public:
  Folding(const Graph& graph, const ReductionPasses& passes, Shape folded)
      : graph_(graph),
        full_(passes.space.shape),
        folded_(std::move(folded)),
        made_(static_cast<size_t>(graph.size()), kInvalidNode) {
    for (NodeId id : graph.inputs()) {
      const Node& input = graph.node(id);
      made(id) = builder_.input(input.dtype, shape(input));
    }
  }

  std::optional<Graph> reductions(std::span<const NodeId> reduces) {
    std::vector<NodeId> outputs;
    for (NodeId id : reduces) {
      const Node& reduce = graph_.node(id);
      const NodeId x = fold(reduce.operands[0]);
      if (x == kInvalidNode) return std::nullopt;
      outputs.push_back(builder_.reduce(reduce.op, x, {0}));
    }
    Result<Graph> graph = builder_.finish(std::move(outputs));
    if (!graph) return std::nullopt;
    return *std::move(graph);
  }

 private:
  NodeId& made(NodeId id) { return made_[static_cast<size_t>(id)]; }
  Shape shape(const Node& node) const { return node.shape == full_ ? folded_ : node.shape; }

  NodeId fold(NodeId id) {
    if (made(id) != kInvalidNode) return made(id);
    const Node& node = graph_.node(id);
    Node copy = node;
    copy.shape = shape(node);
    if (node.op == Op::kView) {
      if (!fold_view(copy, node)) return kInvalidNode;
    } else if (node.op != Op::kConstant && !is_elementwise(node.op)) {
      return kInvalidNode;
    }
    for (NodeId& operand : copy.operands) {
      operand = fold(operand);
      if (operand == kInvalidNode) return kInvalidNode;
    }
    return made(id) = builder_.add(std::move(copy));
  }

  // One element everywhere, or all elements as they lie.
  bool fold_view(Node& copy, const Node& node) const {
    std::vector<Dim>& strides = std::get<ViewAttr>(copy.attr).strides;
    if (node.shape != full_) return false;
    if (std::all_of(strides.begin(), strides.end(),
                    [](const Dim& stride) { return stride == Dim(0); }))
      strides.assign(folded_.size(), Dim(0));
    else if (strides == contiguous_strides(full_))
      strides = contiguous_strides(folded_);
    else
      return false;
    return true;
  }

  const Graph& graph_;
  const Shape full_, folded_;
  GraphBuilder builder_;
  std::vector<NodeId> made_;
};

}  // namespace

int64_t column_fold(int64_t columns, int lanes) {
  return lanes / std::gcd(columns, int64_t{lanes});
}

std::optional<Graph> fold_columns(const Graph& graph, const ReductionPasses& passes,
                                  const ColumnExtent& extent, int64_t fold) {
  if (extent.groups > 1 || extent.rows / fold < 2) return std::nullopt;
  for (size_t p = 0; p < passes.passes.size(); ++p)
    if (!passes.passes[p].outputs.empty() || (p > 0 && !passes.passes[p].empty()))
      return std::nullopt;
  return Folding(graph, passes, {extent.rows / fold, extent.columns * fold})
      .reductions(passes.passes[0].reduces);
}

}  // namespace kiln
