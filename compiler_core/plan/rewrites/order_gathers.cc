#include <optional>

#include "compiler_core/passes/rewrite.h"
#include "compiler_core/plan/rewrites/graph_rewrites.h"
#include "compiler_core/plan/sizes.h"

namespace kiln {
namespace {

class GatherOrderer {
 public:
  explicit GatherOrderer(const Graph& graph)
      : graph_(graph), users_(users_of(graph)), is_output_(outputs_of(graph)) {}

  NodeId emit_ordered(GraphBuilder& b, const Node& node, std::vector<NodeId> operands) const {
    if (const auto order = order_of(node)) {
      const Node gather = b.node(operands[0]);
      const OriginId origin = b.origin();
      b.set_origin(graph_.origin_of(node.operands[0]));
      const NodeId ordered = gather_in(b, gather, *order);
      b.set_origin(origin);
      // Axes that repeat it stand between the others.
      std::vector<Dim> strides = contiguous_strides(order->shape);
      for (size_t k = 0; k < node.shape.size(); ++k)
        if (is_repeated(node, k))
          strides.insert(strides.begin() + static_cast<std::ptrdiff_t>(k), 0);
      return b.view(ordered, node.shape, std::move(strides), 0);
    }
    return emit(b, node, std::move(operands));
  }

 private:
  // The axes of a View that do not repeat anything.
  struct Order {
    Shape shape;
    std::vector<Dim> strides;
  };

  static bool is_repeated(const Node& view, size_t axis) {
    return view.shape[axis].is(1) || std::get<ViewAttr>(view.attr).strides[axis].is(0);
  }

  // Whether the index is an input or a View of one. A computed index would be computed again for every
  // element of a row, or stored.
  bool lies_in_memory(NodeId id) const {
    if (graph_.node(id).op == Op::kView) id = graph_.node(id).operands[0];
    return graph_.node(id).op == Op::kInput;
  }

  // The order in which a View reads the rows of a Gather, where nothing else does, it repeats them and
  // has another axis than the rows' own last.
  std::optional<Order> order_of(const Node& view) const {
    if (view.op != Op::kView) return std::nullopt;
    const NodeId gather = view.operands[0];
    if (graph_.node(gather).op != Op::kGather || is_output_[static_cast<size_t>(gather)] ||
        users_[static_cast<size_t>(gather)].size() != 1 ||
        !lies_in_memory(graph_.node(gather).operands[1]))
      return std::nullopt;
    const auto& attr = std::get<ViewAttr>(view.attr);
    Order order;
    bool repeats = false;
    for (size_t k = 0; k < view.shape.size(); ++k) {
      repeats = repeats || (is_repeated(view, k) && !view.shape[k].is(1));
      if (is_repeated(view, k)) continue;
      order.shape.push_back(view.shape[k]);
      order.strides.push_back(attr.strides[k]);
    }
    if (!repeats || order.shape.empty() || order.strides.back().is(1)) return std::nullopt;
    const Node once{
        Op::kView, view.dtype, order.shape, {gather}, ViewAttr{order.strides, attr.offset}};
    if (!walk_order(graph_, once) || !splits_rows(graph_.node(gather), order)) return std::nullopt;
    return order;
  }

  static Dim row_size(const Node& gather, const Shape& index) {
    return numel(Shape(gather.shape.begin() + static_cast<std::ptrdiff_t>(index.size()),
                       gather.shape.end()));
  }

  // Whether every axis counts rows or elements of one, and rows have a known number of those.
  bool splits_rows(const Node& gather, const Order& order) const {
    const Dim row = row_size(gather, graph_.node(gather.operands[1]).shape);
    if (!row.is_constant()) return false;
    for (size_t k = 0; k < order.shape.size(); ++k) {
      const Dim& stride = order.strides[k];
      const bool within = stride.is_constant() && order.shape[k].is_constant() &&
                          stride.constant() * order.shape[k].constant() <= row.constant();
      if (!within && !Dim::divide_exact(stride, row)) return false;
    }
    return true;
  }

  // The Gather's elements, picked from its table one by one.
  static NodeId gather_in(GraphBuilder& b, const Node& gather, const Order& order) {
    const NodeId table = gather.operands[0], index = gather.operands[1];
    const DType dtype = b.dtype(index);
    const Dim row = row_size(gather, b.shape(index));
    std::vector<Dim> by_row, within;
    for (const Dim& stride : order.strides) {
      const auto rows = Dim::divide_exact(stride, row);
      by_row.push_back(rows.value_or(0));
      within.push_back(rows ? Dim(0) : stride);
    }
    const NodeId size = b.broadcast(b.constant_int(dtype, row.constant()), order.shape);
    const NodeId first = b.binary(Op::kMul, b.view(index, order.shape, std::move(by_row), 0), size);
    const NodeId element = b.view(b.iota(dtype, row), order.shape, std::move(within), 0);
    return b.gather(b.reshape(table, {numel(b.shape(table))}), b.binary(Op::kAdd, first, element));
  }

  const Graph& graph_;
  const std::vector<std::vector<NodeId>> users_;
  const std::vector<bool> is_output_;
};

}  // namespace

Result<Graph> order_gathers(const Graph& graph) {
  const GatherOrderer orderer(graph);
  TRY(const Graph ordered,
      rewrite_nodes(graph, [&](GraphBuilder& b, const Node& node, std::vector<NodeId> operands) {
        return orderer.emit_ordered(b, node, std::move(operands));
      }));
  return rewrite_nodes(ordered, emit);  // without Gathers that nobody reads any more
}

}  // namespace kiln
