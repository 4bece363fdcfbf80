#include "compiler_core/plan/rewrites/graph_rewrites.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler_core/passes/rewrite.h"

namespace kiln {
namespace {

constexpr size_t kMostNodes = 48;  // of the arithmetic looked at on one side of a product

using Users = std::vector<std::vector<NodeId>>;

std::vector<int> axes_with_last_exchanged(size_t rank) {
  std::vector<int> axes(rank);
  for (size_t i = 0; i < rank; ++i) axes[i] = static_cast<int>(i);
  std::swap(axes[rank - 1], axes[rank - 2]);
  return axes;
}

NodeId product_of_vectors(GraphBuilder& b, const Node& node, std::vector<NodeId> operands) {
  const size_t rank = node.shape.size();
  const bool outer = node.op == Op::kMatmul && b.shape(operands[0]).back().is(1);
  const bool inner =
      node.op == Op::kMatmul && node.shape[rank - 1].is(1) && node.shape[rank - 2].is(1);
  if (!outer && !inner) return emit(b, node, std::move(operands));
  for (NodeId& operand : operands)
    if (b.dtype(operand) != node.dtype) operand = b.cast(operand, node.dtype);
  if (outer)
    return b.binary(Op::kMul, b.broadcast(operands[0], node.shape),
                    b.broadcast(operands[1], node.shape));
  const NodeId row = b.permute(operands[1], axes_with_last_exchanged(rank));
  const NodeId sum =
      b.reduce(Op::kReduceSum, b.binary(Op::kMul, operands[0], row), {static_cast<int>(rank) - 1});
  return b.reshape(sum, node.shape);
}

// The elementwise nodes that `root` is computed by, and what those read.
struct Region {
  std::set<NodeId> nodes, leaves;
};
std::optional<Region> region_of(const Graph& graph, NodeId root) {
  Region region;
  std::vector<NodeId> stack = {root};
  while (!stack.empty()) {
    const NodeId id = stack.back();
    stack.pop_back();
    if (!is_elementwise(graph.node(id).op)) {
      region.leaves.insert(id);
    } else if (region.nodes.insert(id).second) {
      const auto& operands = graph.node(id).operands;
      stack.insert(stack.end(), operands.begin(), operands.end());
    }
    if (region.nodes.size() > kMostNodes) return std::nullopt;
  }
  return region;
}

// Whether only `reader` and nodes of the region read `id`.
bool read_inside(const Users& users, const std::vector<bool>& is_output, const Region& region,
                 NodeId reader, NodeId id) {
  const auto& all = users[static_cast<size_t>(id)];
  return !is_output[static_cast<size_t>(id)] && std::all_of(all.begin(), all.end(), [&](NodeId x) {
    return x == reader || region.nodes.count(x) != 0;
  });
}

class Turner {
 public:
  explicit Turner(const Graph& graph)
      : rewrite_(graph), graph_(graph), users_(users_of(graph)), is_output_(outputs_of(graph)) {}

  Result<Graph> run() {
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      if (node.op == Op::kInput) continue;
      rewrite_.builder.set_origin(graph_.origin_of(id));
      std::vector<NodeId> operands = rewrite_.operands(node);
      if (node.op == Op::kMatmul)
        for (size_t i = 0; i < 2; ++i)
          if (const auto region = region_to_turn(id, node.operands[i]))
            operands[i] = turned(*region, node.operands[i]);
      rewrite_[id] = emit(rewrite_.builder, node, std::move(operands));
    }
    TRY(const Graph turned, rewrite_.finish());
    return rewrite_nodes(turned, emit);  // without what nobody reads any more
  }

 private:
  // Where more of what `root` reads lies along its last axis but one than along its last.
  std::optional<Region> region_to_turn(NodeId matmul, NodeId root) const {
    if (!is_elementwise(graph_.node(root).op)) return std::nullopt;
    auto region = region_of(graph_, root);
    if (!region) return std::nullopt;
    for (NodeId id : region->nodes)
      if (!widens_leaf(id) && !read_inside(users_, is_output_, *region, matmul, id))
        return std::nullopt;
    int votes = 0;
    for (NodeId id : region->leaves) votes += vote(graph_.node(id));
    return votes > 0 ? region : std::nullopt;
  }

  // 1: its elements lie along the last axis but one; -1: along the last. A row or a column that is
  // spread over the other axis is small, however it is read.
  static int vote(const Node& leaf) {
    if (leaf.op != Op::kView) return -1;
    const auto& strides = std::get<ViewAttr>(leaf.attr).strides;
    const Dim &inner = strides[strides.size() - 1], &outer = strides[strides.size() - 2];
    if (inner.is(0) || outer.is(0)) return 0;
    return outer.is(1) - inner.is(1);
  }

  // Computed again at no cost where others read it too.
  bool widens_leaf(NodeId id) const {
    const Node& node = graph_.node(id);
    return node.op == Op::kCast && !is_elementwise(graph_.node(node.operands[0]).op);
  }

  NodeId turned(const Region& region, NodeId root) {
    GraphBuilder& b = rewrite_.builder;
    const std::vector<int> axes = axes_with_last_exchanged(graph_.node(root).shape.size());
    std::map<NodeId, NodeId> map;
    for (NodeId id : region.leaves) map[id] = b.permute(rewrite_[id], axes);
    for (NodeId id : region.nodes) {
      Node node = graph_.node(id);
      for (NodeId& operand : node.operands) operand = map.at(operand);
      std::swap(node.shape[node.shape.size() - 1], node.shape[node.shape.size() - 2]);
      map[id] = b.add(std::move(node));
    }
    return b.permute(map.at(root), axes);
  }

  Rewrite rewrite_;
  const Graph& graph_;
  const Users users_;
  const std::vector<bool> is_output_;
};

class Orderer {
 public:
  explicit Orderer(const Graph& graph)
      : rewrite_(graph),
        graph_(graph),
        users_(users_of(graph)),
        is_output_(outputs_of(graph)),
        delayed_(static_cast<size_t>(graph.size()), false) {}

  Result<Graph> run() {
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (is_elementwise(graph_.node(id).op) && graph_.node(id).operands.size() == 2) meet(id);
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (!delayed_[static_cast<size_t>(id)]) emit_with_operands(id);
    return rewrite_.finish();
  }

 private:
  // One product, and arithmetic on it that only `meeting` reads.
  struct Side {
    NodeId product = kInvalidNode;
    Region region;
  };
  std::optional<Side> side(NodeId meeting, NodeId root) const {
    auto region = region_of(graph_, root);
    if (!region) return std::nullopt;
    Side side{kInvalidNode, *std::move(region)};
    for (NodeId id : side.region.leaves) {
      if (graph_.node(id).op != Op::kMatmul) continue;
      if (side.product != kInvalidNode) return std::nullopt;
      side.product = id;
    }
    if (side.product == kInvalidNode) return std::nullopt;
    const auto ours = [&](NodeId id) {
      return read_inside(users_, is_output_, side.region, meeting, id);
    };
    if (!ours(side.product) ||
        !std::all_of(side.region.nodes.begin(), side.region.nodes.end(), ours))
      return std::nullopt;
    return side;
  }

  void meet(NodeId meeting) {
    const auto& operands = graph_.node(meeting).operands;
    const auto a = side(meeting, operands[0]);
    if (!a) return;
    const auto b = side(meeting, operands[1]);
    if (!b || a->product == b->product) return;
    const Side& first = a->product < b->product ? *a : *b;
    const Side& second = a->product < b->product ? *b : *a;
    if (first.region.nodes.size() <= second.region.nodes.size()) return;
    delayed_[static_cast<size_t>(first.product)] = true;
    for (NodeId id : first.region.nodes) delayed_[static_cast<size_t>(id)] = true;
  }

  // Emits delayed nodes right in front of their first reader, after its other operands.
  void emit_with_operands(NodeId root) {
    std::vector<NodeId> stack = {root};
    while (!stack.empty()) {
      const NodeId id = stack.back();
      const Node& node = graph_.node(id);
      const size_t before = stack.size();
      for (NodeId operand : node.operands)
        if (rewrite_[operand] == kInvalidNode) stack.push_back(operand);
      if (stack.size() != before && rewrite_.builder.ok()) continue;
      stack.pop_back();
      if (rewrite_[id] != kInvalidNode || !rewrite_.builder.ok()) continue;
      rewrite_.builder.set_origin(graph_.origin_of(id));
      rewrite_[id] = emit(rewrite_.builder, node, rewrite_.operands(node));
    }
  }

  Rewrite rewrite_;
  const Graph& graph_;
  const Users users_;
  const std::vector<bool> is_output_;
  std::vector<bool> delayed_;
};

}  // namespace

Result<Graph> arrange_products(const Graph& graph) {
  TRY(Graph arranged, round_products(graph));
  TRY(arranged, Turner(arranged).run());
  // What was turned back may be what others read as it was.
  TRY(arranged, share_equal_nodes(arranged));
  return Orderer(arranged).run();
}

Result<Graph> multiply_vectors(const Graph& graph) {
  return rewrite_nodes(graph, product_of_vectors);
}

}  // namespace kiln
