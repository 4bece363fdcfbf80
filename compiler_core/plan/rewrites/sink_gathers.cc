#include "compiler_core/plan/rewrites/graph_rewrites.h"

#include <optional>
#include <unordered_map>

#include "compiler_core/passes/rewrite.h"

namespace kiln {
namespace {

// One gather, in the graph being built.
class GatherSinker {
 public:
  GatherSinker(GraphBuilder& builder, NodeId table, NodeId index)
      : builder_(builder), table_(table), index_(index) {}

  // The gather's value in the index's shape; nullopt when it stays as it is.
  std::optional<NodeId> run() {
    const Shape shape = builder_.shape(index_);
    const auto columns = row_stride();
    if (!columns || builder_.shape(table_).size() != 1) return std::nullopt;
    columns_ = *columns;
    rows_ = numel(shape);
    if (columns_ < 2 || numel(builder_.shape(table_)) != rows_ * Dim(columns_)) return std::nullopt;
    if (!has_reduction(table_)) return std::nullopt;
    index_ = builder_.reshape(index_, {rows_});
    return builder_.reshape(picked(table_), shape);
  }

 private:
  const Node& node(NodeId id) const { return builder_.node(id); }

  // The c of an index that is iota * c + something, where iota counts the index's elements; known
  // sizes have it as a View of an iota with stride c.
  std::optional<int64_t> row_stride() const {
    if (node(index_).op != Op::kAdd) return std::nullopt;
    for (NodeId term : node(index_).operands) {
      if (const auto stride = counts_by(term)) return stride;
      if (node(term).op != Op::kMul) continue;
      const NodeId a = node(term).operands[0], b = node(term).operands[1];
      for (const auto& [number, factor] : {std::pair(a, b), std::pair(b, a)})
        if (const auto stride = repeated_constant(factor); stride && counts(number)) return stride;
    }
    return std::nullopt;
  }
  std::optional<int64_t> repeated_constant(NodeId id) const {
    const Node& view = node(id);
    if (view.op != Op::kView || node(view.operands[0]).op != Op::kConstant) return std::nullopt;
    return std::get<ConstantAttr>(node(view.operands[0]).attr).as_int();
  }
  std::optional<int64_t> counts_by(NodeId id) const {
    const Node& view = node(id);
    if (view.op != Op::kView || node(view.operands[0]).op != Op::kIota) return std::nullopt;
    size_t last = view.shape.size();
    while (last > 0 && view.shape[last - 1].is(1)) --last;
    if (last == 0) return std::nullopt;
    const Dim& step = std::get<ViewAttr>(view.attr).strides[last - 1];
    if (!step.is_constant() || !walks_in_order(view, last, step)) return std::nullopt;
    return step.constant();
  }
  bool counts(NodeId id) const {
    if (node(id).op == Op::kIota) return true;
    if (node(id).op != Op::kView) return false;
    const NodeId x = node(id).operands[0];
    return node(x).op == Op::kIota && numel(node(x).shape) == numel(node(id).shape) &&
           walks_in_order(node(id), node(id).shape.size());
  }

  // Whether the first `rank` axes of a View read elements `stride` apart, beginning with the first.
  static bool walks_in_order(const Node& view, size_t rank, Dim stride = 1) {
    const auto& attr = std::get<ViewAttr>(view.attr);
    if (!attr.offset.is(0)) return false;
    for (size_t k = rank; k-- > 0;) {
      if (!view.shape[k].is(1) && attr.strides[k] != stride) return false;
      stride = stride * view.shape[k];
    }
    return true;
  }

  // For a flattened repetition of one value a row along the columns: that value.
  NodeId row_value(NodeId id) const {
    const Node& flat = node(id);
    if (flat.op != Op::kView || !walks_in_order(flat, flat.shape.size())) return kInvalidNode;
    const Node& spread = node(flat.operands[0]);
    if (spread.op != Op::kView || numel(spread.shape) != numel(flat.shape)) return kInvalidNode;
    const size_t rank = spread.shape.size();
    const bool repeats = rank > 0 && spread.shape[rank - 1].is(columns_) &&
                         std::get<ViewAttr>(spread.attr).strides[rank - 1].is(0) &&
                         walks_in_order(spread, rank - 1);
    if (!repeats || numel(builder_.shape(spread.operands[0])) != rows_) return kInvalidNode;
    return spread.operands[0];
  }

  bool has_reduction(NodeId id) {
    const auto [known, fresh] = reduced_.try_emplace(id, false);
    if (!fresh) return known->second;
    bool found = row_value(id) != kInvalidNode;
    if (is_elementwise(node(id).op)) {
      const std::vector<NodeId> operands = node(id).operands;
      for (NodeId operand : operands) found = has_reduction(operand) || found;
    }
    return reduced_[id] = found;
  }

  // The picked elements of `id`, of shape [rows].
  NodeId picked(NodeId id) {
    if (const auto known = picked_.find(id); known != picked_.end()) return known->second;
    const Node whole = node(id);
    NodeId result = kInvalidNode;
    if (is_elementwise(whole.op)) {
      std::vector<NodeId> operands;
      for (NodeId operand : whole.operands) operands.push_back(picked(operand));
      result = builder_.add({whole.op, whole.dtype, {rows_}, std::move(operands), whole.attr});
    } else if (const NodeId row = row_value(id); row != kInvalidNode) {
      result = builder_.reshape(row, {rows_});
    } else if (whole.op == Op::kView && node(whole.operands[0]).op == Op::kConstant) {
      result = builder_.view(whole.operands[0], {rows_}, {0}, 0);
    } else {
      result = builder_.gather(id, index_);
    }
    return picked_[id] = result;
  }

  GraphBuilder& builder_;
  const NodeId table_;
  NodeId index_;
  Dim rows_;
  int64_t columns_ = 0;
  std::unordered_map<NodeId, bool> reduced_;
  std::unordered_map<NodeId, NodeId> picked_;
};

NodeId sink(GraphBuilder& builder, const Node& node, std::vector<NodeId> operands) {
  if (node.op == Op::kGather)
    if (const auto sunk = GatherSinker(builder, operands[0], operands[1]).run()) return *sunk;
  return emit(builder, node, std::move(operands));
}

}  // namespace

Result<Graph> sink_gathers(const Graph& graph) {
  return rewrite_nodes(graph, sink);
}

}  // namespace kiln
