#include "compiler_core/kernels/attention/attention_problem.h"

#include <algorithm>

#include "compiler_core/base/check.h"
#include "compiler_core/passes/constant_value.h"
#include "compiler_core/plan/attention/computed_operands.h"

namespace kiln {

namespace {

// Whether `id` is nothing but Views and Gathers, or kInvalidNode.
bool is_moved(const Graph& graph, NodeId id) {
  while (id != kInvalidNode && (graph.node(id).op == Op::kView || graph.node(id).op == Op::kGather))
    id = graph.node(id).operands[0];
  return id == kInvalidNode || !is_elementwise(graph.node(id).op);
}

// Whether the value of `id` changes along an axis of its shape.
bool varies_along(const Graph& graph, NodeId id, size_t axis) {
  const Node& node = graph.node(id);
  if (node.shape[axis].is(1)) return false;
  if (node.op == Op::kView) return !std::get<ViewAttr>(node.attr).strides[axis].is(0);
  if (!is_elementwise(node.op)) return true;
  return std::ranges::any_of(node.operands, [&](NodeId x) { return varies_along(graph, x, axis); });
}

}  // namespace

AttentionOperand attention_operand(const Graph& graph, NodeId id, bool tokens_last) {
  const Node& node = graph.node(id);
  std::vector<Dim> strides = contiguous_strides(node.shape);
  AttentionOperand operand;
  if (!computed_operand(graph, id).empty()) {
    operand.input = -1;
    operand.computed = id;
    for (size_t axis = 0; axis + 2 < node.shape.size(); ++axis)
      operand.batch_strides.emplace_back(varies_along(graph, id, axis) ? 1 : 0);
    return operand;
  }
  const Node* source = &node;
  if (node.op == Op::kView) {
    const auto& view = std::get<ViewAttr>(node.attr);
    strides = view.strides;
    operand.offset = view.offset;
    source = &graph.node(node.operands[0]);
  }
  CHECK(source->op == Op::kInput, "an attention's operands are views of inputs");
  operand.input = std::get<InputAttr>(source->attr).index;
  for (size_t axis = 0; axis + 2 < strides.size(); ++axis)
    operand.batch_strides.push_back(strides[axis]);
  operand.row_stride = strides[strides.size() - (tokens_last ? 1 : 2)];
  operand.column_stride = strides[strides.size() - (tokens_last ? 2 : 1)];
  return operand;
}

namespace {

// Sets scaled and scale.
void find_scale(const Graph& graph, AttentionProblem& problem) {
  constexpr double kMostScale = 1 << 20;
  const AttentionPattern& pattern = problem.pattern;
  problem.scaled = pattern.query_key;
  const Node& x = graph.node(scores_under_mask(graph, pattern.scores));
  if (x.op != Op::kMul || x.dtype != DType::kF32) return;
  const bool first = x.operands[0] == pattern.query_key;
  if (!first && x.operands[1] != pattern.query_key) return;
  const auto factor = constant_value(graph, x.operands[first ? 1 : 0]);
  if (!factor) return;
  const double scale = factor->as_double();
  if (!(scale > 0 && scale < kMostScale)) return;
  if (std::ranges::count_if(graph.nodes(), [&](const Node& user) {
        return std::ranges::find(user.operands, pattern.query_key) != user.operands.end();
      }) != 1)
    return;
  problem.scaled = scores_under_mask(graph, pattern.scores);
  problem.scale = scale;
}

// Which axis of the product each axis of the result is.
std::vector<int> axes_of_result(const Graph& graph, const AttentionProblem& problem) {
  const Shape& product = graph.node(problem.pattern.product).shape;
  const std::vector<Dim> strides = contiguous_strides(product);
  const Node& result = graph.node(problem.result);
  const auto rank = static_cast<int>(product.size());
  std::vector<int> axes;
  std::vector<bool> used(product.size(), false);
  for (int i = 0; i < rank; ++i) {
    int found = i;
    if (problem.result != problem.pattern.product && i + 1 < rank) {
      const auto& view = std::get<ViewAttr>(result.attr);
      for (int j = 0; j + 1 < rank; ++j) {
        const auto at = static_cast<size_t>(j), here = static_cast<size_t>(i);
        if (used[at] || product[at] != result.shape[here]) continue;
        if (product[at].is(1) || view.strides[here] == strides[at]) found = j;
      }
    }
    used[static_cast<size_t>(found)] = true;
    axes.push_back(found);
  }
  return axes;
}

}  // namespace

AttentionProblem AttentionProblem::of(const Graph& workload) {
  auto pattern = find_attention(workload);
  CHECK(pattern, "an attention workload has its pattern");
  AttentionProblem problem;
  problem.pattern = *std::move(pattern);
  problem.outputs = attention_outputs(workload, problem.pattern);
  problem.result = attention_result(workload, problem.pattern);
  const Node& first = workload.node(problem.pattern.query_key);
  const Node& second = workload.node(problem.pattern.product);
  problem.stored = workload.node(first.operands[0]).dtype;
  const Shape& sizes = first.shape;
  problem.batch.assign(sizes.begin(), sizes.end() - 2);
  for (const Dim& size : problem.batch) problem.batches = problem.batches * size;
  problem.rows = sizes[sizes.size() - 2];
  problem.keys = sizes.back();
  problem.depth = workload.node(first.operands[0]).shape.back().constant();
  problem.columns = second.shape.back().constant();
  problem.query = attention_operand(workload, first.operands[0], false);
  problem.key = attention_operand(workload, first.operands[1], true);
  problem.value = attention_operand(workload, second.operands[1], false);
  problem.moves_operands =
      is_moved(workload, problem.key.computed) && is_moved(workload, problem.value.computed);
  problem.result_axes = axes_of_result(workload, problem);
  if (!problem.pattern.normalised)
    for (NodeId id = 0; id < workload.size(); ++id)
      if (workload.node(id).op == Op::kView &&
          workload.node(id).operands[0] == problem.pattern.row_sum)
        problem.sum_view = id;
  problem.mask = find_mask_bounds(workload, problem.pattern.scores);
  find_scale(workload, problem);
  return problem;
}

AttentionProblem AttentionProblem::with_heads_as_rows() const {
  if (!rows.is(1)) return *this;
  for (size_t axis = 0; axis < batch.size(); ++axis) {
    if (batch[axis].is(1) || !batch[axis].is_constant() || !key.batch_strides[axis].is(0) ||
        !value.batch_strides[axis].is(0))
      continue;
    AttentionProblem packed = *this;
    packed.heads_axis = static_cast<int>(axis);
    packed.rows = batch[axis];
    packed.query.row_stride = query.batch_strides[axis];
    packed.batch[axis] = 1;
    packed.batches = 1;
    for (const Dim& size : packed.batch) packed.batches = packed.batches * size;
    // What a mask says of one row it does not say of others; scores have it in any case.
    packed.mask = {};
    return packed;
  }
  return *this;
}

Status check_operands_lie_in_memory(const Workload& workload) {
  if (!AttentionProblem::of(workload.graph).computes_operands()) return {};
  return fail(Code::kUnsupported, "keys and values that are computed have kernels of few rows");
}

}  // namespace kiln
