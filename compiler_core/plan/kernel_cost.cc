#include "compiler_core/plan/kernel_cost.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "compiler_core/plan/attention/attention.h"
#include "compiler_core/plan/attention/mask_bounds.h"
#include "compiler_core/plan/row_update.h"

namespace kiln {
namespace {

class CostCounter {
 public:
  CostCounter(const Graph& graph, std::span<const int64_t> sizes) : graph_(graph), sizes_(sizes) {}

  Result<KernelCost> run(const FusedKernel& kernel) {
    for (NodeId id : kernel.inputs) reads_[id] = 0;
    for (NodeId id : kernel.computed) TRY_STATUS(count(graph_.node(id)));
    note_kept_inputs(kernel);
    TRY(int64_t rows, rows_of_update(kernel.workload).substitute(kernel.dims).evaluate(sizes_));
    rows = std::max<int64_t>(rows, 1);
    for (NodeId id : kernel.outputs) {
      TRY(const int64_t whole, count_elements(graph_.node(id).shape));
      cost_.bytes += whole / rows * size_of(graph_.node(id).dtype);
    }
    for (const auto& [id, elements] : reads_) {
      TRY(const int64_t whole, count_elements(graph_.node(id).shape));
      cost_.bytes += std::min(elements, whole) / (kept_.contains(id) ? rows : 1) *
                     size_of(graph_.node(id).dtype);
    }
    TRY(const double shown, shown_scores(kernel));
    const auto of_shown = [&](int64_t flops) {
      return shown == 1 ? flops : static_cast<int64_t>(static_cast<double>(flops) * shown);
    };
    cost_.contraction_flops = of_shown(cost_.contraction_flops);
    cost_.flops = of_shown(cost_.flops / rows) + cost_.contraction_flops;
    return cost_;
  }

 private:
  // The part of attention's scores that a mask of places shows: nothing else has to be computed. 1: all, or
  // it is no attention.
  Result<double> shown_scores(const FusedKernel& kernel) const {
    if (kernel.workload.family != Family::kAttention) return 1.0;
    const Graph& graph = kernel.workload.graph;
    const auto pattern = find_attention(graph);
    if (!pattern) return 1.0;
    std::vector<int64_t> symbols;
    for (const Dim& dim : kernel.dims) {
      TRY(symbols.emplace_back(), dim.evaluate(sizes_));
    }
    const Shape& scores = graph.node(pattern->query_key).shape;
    TRY(const int64_t rows, scores[scores.size() - 2].evaluate(symbols));
    TRY(const int64_t keys, scores.back().evaluate(symbols));
    return shown_share(find_mask_bounds(graph, pattern->scores), rows, keys, symbols);
  }

  void note_kept_inputs(const FusedKernel& kernel) {
    if (kernel.workload.family != Family::kRowUpdate) return;
    const Graph& workload = kernel.workload.graph;
    const auto update = find_row_update(workload);
    for (const NodeId base : update ? update->bases : std::vector<NodeId>())
      kept_.insert(
          kernel.inputs[static_cast<size_t>(std::get<InputAttr>(workload.node(base).attr).index)]);
  }

  Result<int64_t> count_elements(const Shape& shape) const { return numel(shape).evaluate(sizes_); }

  // How many elements of its operand a View touches: an axis of stride 0 repeats them.
  Result<int64_t> touched(const Node& view) const {
    const auto& strides = std::get<ViewAttr>(view.attr).strides;
    Dim elements = 1;
    for (size_t i = 0; i < strides.size(); ++i)
      if (!strides[i].is(0)) elements = elements * view.shape[i];
    return elements.evaluate(sizes_);
  }

  Status count(const Node& node) {
    TRY(const int64_t elements, count_elements(node.shape));
    for (size_t i = 0; i < node.operands.size(); ++i) TRY_STATUS(count_read(node, i, elements));
    const OpKind kind = traits(node.op).kind;
    if (is_elementwise(node.op) && node.op != Op::kCast && node.op != Op::kSelect)
      cost_.flops += elements;
    if (kind == OpKind::kReduce || kind == OpKind::kScan) {
      TRY(const int64_t taken, count_elements(graph_.node(node.operands[0]).shape));
      cost_.flops += taken;
    }
    if (kind == OpKind::kContract) TRY_STATUS(count_contraction(node, elements));
    return {};
  }

  Status count_read(const Node& node, size_t operand, int64_t elements) {
    const NodeId id = node.operands[operand];
    const auto read = reads_.find(id);
    if (read == reads_.end()) return {};
    int64_t taken = 0;
    if (node.op == Op::kView) {
      TRY(taken, touched(node));
    } else if (node.op == Op::kGather && operand == 0) {
      taken = elements;
    } else {
      TRY(taken, count_elements(graph_.node(id).shape));
    }
    read->second += taken;  // no more than there are, in the end
    return {};
  }

  // Each element of the result is a sum over what the second operand has for it.
  Status count_contraction(const Node& node, int64_t elements) {
    const Shape& b = graph_.node(node.operands[1]).shape;
    Dim depth = b[b.size() - 2];
    if (node.op == Op::kConvolution) {
      depth = 1;
      for (size_t i = 1; i < b.size(); ++i) depth = depth * b[i];
    }
    TRY(const int64_t terms, depth.evaluate(sizes_));
    cost_.contraction_flops += 2 * elements * terms;
    cost_.contracted = graph_.node(node.operands[0]).dtype;
    return {};
  }

  const Graph& graph_;
  const std::span<const int64_t> sizes_;
  std::map<NodeId, int64_t> reads_;  // elements of each input
  std::set<NodeId> kept_;            // inputs of which a row is read, and the others are kept
  KernelCost cost_;
};

}  // namespace

Result<KernelCost> kernel_cost(const Partition& partition, const FusedKernel& kernel,
                               std::span<const int64_t> sizes) {
  return CostCounter(partition.graph, sizes).run(kernel);
}

Result<KernelCost> workload_cost(const Workload& workload, std::span<const int64_t> sizes) {
  const Graph& graph = workload.graph;
  FusedKernel whole;
  whole.workload = workload;
  for (size_t i = 0; i < graph.symbols().size(); ++i)
    whole.dims.push_back(Dim::symbol(static_cast<SymbolId>(i)));
  whole.inputs.assign(graph.inputs().begin(), graph.inputs().end());
  whole.outputs.assign(graph.outputs().begin(), graph.outputs().end());
  for (NodeId id = 0; id < graph.size(); ++id)
    if (graph.node(id).op != Op::kInput) whole.computed.push_back(id);
  return CostCounter(graph, sizes).run(whole);
}

}  // namespace kiln
