#include "compiler_core/kernels/analysis/reduction_passes.h"

#include <algorithm>

namespace kiln {
namespace {

bool is_costly(Op op) {
  switch (op) {
    case Op::kDiv:
    case Op::kRem:
    case Op::kPow:
    case Op::kAtan2:
    case Op::kSqrt:
    case Op::kRsqrt:
    case Op::kReciprocal:
    case Op::kExp:
    case Op::kExpm1:
    case Op::kLog:
    case Op::kLog1p:
    case Op::kSin:
    case Op::kCos:
    case Op::kTan:
    case Op::kTanh:
    case Op::kErf:
      return true;
    default:
      return false;
  }
}

// Finds what each loop computes, and keeps what a later loop would compute again.
class Keeper {
 public:
  Keeper(const Graph& graph, ReductionPasses& passes, ReductionPasses::Keep keep)
      : graph_(graph),
        passes_(passes),
        keep_(keep),
        computed_in_(static_cast<size_t>(graph.size()), -1),
        kept_(static_cast<size_t>(graph.size()), false),
        costly_(find_costly()) {}

  void run() {
    for (size_t p = 0; p < passes_.passes.size(); ++p) {
      visited_.assign(static_cast<size_t>(graph_.size()), false);
      // By value: visiting adds to the kept nodes of earlier passes only.
      for (NodeId reduce : passes_.passes[p].reduces)
        visit(graph_.node(reduce).operands[0], static_cast<int>(p));
      for (int output : passes_.passes[p].outputs)
        visit(graph_.outputs()[static_cast<size_t>(output)], static_cast<int>(p));
    }
  }

 private:
  void visit(NodeId id, int pass) {
    const auto at = static_cast<size_t>(id);
    const Node& node = graph_.node(id);
    if (visited_[at] || !is_elementwise(node.op) || !passes_.is_full(graph_, id)) return;
    visited_[at] = true;
    if (kept_[at]) return;
    if (computed_in_[at] >= 0 && computed_in_[at] < pass && is_worth_keeping(id)) {
      kept_[at] = true;
      passes_.passes[static_cast<size_t>(computed_in_[at])].kept.push_back(id);
      return;
    }
    if (computed_in_[at] < 0) computed_in_[at] = pass;
    for (NodeId operand : node.operands) visit(operand, pass);
  }

  bool is_worth_keeping(NodeId id) const {
    return keep_ == ReductionPasses::Keep::kAnything || costly_[static_cast<size_t>(id)];
  }

  // Whether computing each full value again takes a costly operation.
  std::vector<bool> find_costly() const {
    std::vector<bool> costly;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      costly.push_back(is_elementwise(node.op) && passes_.is_full(graph_, id) &&
                       (is_costly(node.op) ||
                        std::any_of(node.operands.begin(), node.operands.end(),
                                    [&](NodeId x) { return costly[static_cast<size_t>(x)]; })));
    }
    return costly;
  }

  const Graph& graph_;
  ReductionPasses& passes_;
  const ReductionPasses::Keep keep_;
  std::vector<int> computed_in_;  // the first pass that computes a node, or -1
  std::vector<bool> kept_;
  const std::vector<bool> costly_;
  std::vector<bool> visited_;  // in the present pass
};

}  // namespace

ReductionPasses ReductionPasses::of(const Graph& graph, Keep keep) {
  ReductionPasses result;
  result.space = reduction_space(graph);
  int deepest = 0;
  for (const Node& node : graph.nodes()) {
    int depth = 0;
    for (NodeId operand : node.operands)
      depth = std::max(depth, result.depth[static_cast<size_t>(operand)]);
    if (traits(node.op).kind == OpKind::kReduce) ++depth;
    result.depth.push_back(depth);
    deepest = std::max(deepest, depth);
  }
  result.passes.resize(static_cast<size_t>(deepest) + 1);
  for (NodeId id = 0; id < graph.size(); ++id)
    if (traits(graph.node(id).op).kind == OpKind::kReduce)
      result.passes[static_cast<size_t>(result.depth[static_cast<size_t>(id)]) - 1]
          .reduces.push_back(id);
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const NodeId id = graph.outputs()[i];
    if (result.is_full(graph, id))
      result.passes[static_cast<size_t>(result.depth[static_cast<size_t>(id)])].outputs.push_back(
          static_cast<int>(i));
    else
      result.reduced_outputs.push_back(static_cast<int>(i));
  }
  if (keep != Keep::kNothing) Keeper(graph, result, keep).run();
  return result;
}

int64_t ReductionPasses::kept_bytes_per_element(const Graph& graph) const {
  int64_t bytes = 0;
  for (const Pass& pass : passes)
    for (NodeId id : pass.kept) bytes += size_of(graph.node(id).dtype);
  return bytes;
}

}  // namespace kiln
