#include <algorithm>
#include <map>
#include <optional>

#include "compiler_core/passes/rewrite.h"
#include "compiler_core/plan/rewrites/graph_rewrites.h"
#include "compiler_core/plan/sizes.h"

namespace kiln {
namespace {

constexpr size_t kMaxChain = 8;  // nodes of arithmetic, its rounding included

// Columns of a product that are read through one View, and what is done with them before anything else.
struct Columns {
  NodeId view = kInvalidNode;
  int64_t first = 0, last = 0;
  std::vector<NodeId> chain;  // arithmetic with constants up to a rounding; may be empty
};

class Folder {
 public:
  explicit Folder(const Graph& graph)
      : rewrite_(graph), graph_(graph), users_(users_of(graph)), is_output_(outputs_of(graph)) {}

  Result<Graph> run() {
    GraphBuilder& b = rewrite_.builder;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      if (node.op == Op::kInput) continue;
      b.set_origin(graph_.origin_of(id));
      if (const auto end = views_.find(id); end != views_.end()) {
        const Node& view = graph_.node(end->second);
        const auto& attr = std::get<ViewAttr>(view.attr);
        rewrite_[id] = b.view(rewrite_[view.operands[0]], view.shape, attr.strides, attr.offset);
        continue;
      }
      rewrite_[id] = emit(b, node, rewrite_.operands(node));
      for (const Columns& columns : folded(id)) fold(id, columns);
    }
    return rewrite_.finish();
  }

 private:
  const Node& node(NodeId id) const { return graph_.node(id); }
  const std::vector<NodeId>& users(NodeId id) const { return users_[static_cast<size_t>(id)]; }

  // The columns of `rounded` whose arithmetic can be done where it is stored: no other View reads them.
  std::vector<Columns> folded(NodeId rounded) const {
    if (!is_rounded_product(rounded) || is_output_[static_cast<size_t>(rounded)]) return {};
    std::vector<Columns> all, folded;
    for (const NodeId user : users(rounded)) {
      auto columns = columns_of(user);
      if (!columns) return {};
      all.push_back(*std::move(columns));
    }
    for (const Columns& one : all) {
      const auto is_apart = [&one](const Columns& other) {
        return other.view == one.view || other.last < one.first || other.first > one.last;
      };
      if (!one.chain.empty() && std::ranges::all_of(all, is_apart)) folded.push_back(one);
    }
    return folded.size() < all.size() ? folded : std::vector<Columns>();
  }
  // A product in halves, maybe behind a bias: that has a kernel's epilogue in which to do more.
  bool is_rounded_product(NodeId id) const {
    if (node(id).op != Op::kCast || !is_half(node(id).dtype) || node(id).shape.size() < 2)
      return false;
    const Node& of = node(node(id).operands[0]);
    if (of.op == Op::kMatmul) return true;
    return of.op == Op::kAdd && std::ranges::any_of(of.operands, [this](NodeId x) {
             return node(x).op == Op::kMatmul && users(x).size() == 1;
           });
  }

  std::optional<Columns> columns_of(NodeId user) const {
    const Node& view = node(user);
    if (view.op != Op::kView || !is_constant(view.shape)) return std::nullopt;
    const Dim& width = node(view.operands[0]).shape.back();
    if (!width.is_constant() || width.is(0)) return std::nullopt;
    const auto& attr = std::get<ViewAttr>(view.attr);
    const auto place = [&width](const Dim& step) -> std::optional<int64_t> {
      if (!step.is_constant() || step.constant() < 0) return std::nullopt;
      return step.constant() % width.constant();
    };
    const auto first = place(attr.offset);
    if (!first) return std::nullopt;
    Columns columns{user, *first, *first, chain_of(user)};
    for (size_t i = 0; i < view.shape.size(); ++i) {
      const auto step = place(attr.strides[i]);
      if (!step || view.shape[i].is(0)) return std::nullopt;
      columns.last += *step * (view.shape[i].constant() - 1);
    }
    return columns.last < width.constant() ? std::optional(columns) : std::nullopt;
  }

  // Nodes of one reader each, that compute halves again of what the View reads and of constants.
  std::vector<NodeId> chain_of(NodeId view) const {
    std::vector<NodeId> chain;
    for (NodeId at = view; chain.size() < kMaxChain;) {
      if (is_output_[static_cast<size_t>(at)] || users(at).size() != 1) return {};
      const NodeId next = users(at)[0];
      if (!is_elementwise(node(next).op)) return {};
      for (const NodeId operand : node(next).operands)
        if (operand != at && !is_splat(operand)) return {};
      chain.push_back(next);
      if (node(next).dtype == node(view).dtype)
        return chain.size() > 1 ? chain : std::vector<NodeId>();
      at = next;
    }
    return {};
  }
  bool is_splat(NodeId id) const {
    return node(id).op == Op::kView && node(node(id).operands[0]).op == Op::kConstant;
  }

  void fold(NodeId rounded, const Columns& columns) {
    GraphBuilder& b = rewrite_.builder;
    const Shape shape = node(rounded).shape;
    const auto spread = [&](NodeId x, bool by_column) {
      std::vector<Dim> strides(shape.size(), 0);
      if (by_column) strides.back() = 1;
      return b.view(x, shape, strides, 0);
    };
    std::map<NodeId, NodeId> done = {{columns.view, rewrite_[rounded]}};
    for (const NodeId id : columns.chain) {
      Node copy = node(id);
      copy.shape = shape;
      for (NodeId& operand : copy.operands)
        operand = done.contains(operand)
                      ? done[operand]
                      : spread(b.add(Node(node(node(operand).operands[0]))), false);
      done[id] = b.add(std::move(copy));
    }
    const NodeId column = spread(b.iota(DType::kI32, shape.back()), true);
    const auto bound = [&](int64_t at) {
      return spread(b.constant(DType::kI32, static_cast<double>(at)), false);
    };
    NodeId is_one = kInvalidNode;
    if (columns.last + 1 < shape.back().constant())
      is_one = b.binary(Op::kLt, column, bound(columns.last + 1));
    if (columns.first > 0) {
      const NodeId behind = b.binary(Op::kLt, bound(columns.first - 1), column);
      is_one = is_one == kInvalidNode ? behind : b.binary(Op::kAnd, is_one, behind);
    }
    rewrite_[rounded] = b.select(is_one, done[columns.chain.back()], rewrite_[rounded]);
    views_[columns.chain.back()] = columns.view;
  }

  Rewrite rewrite_;
  const Graph& graph_;
  const std::vector<std::vector<NodeId>> users_;
  const std::vector<bool> is_output_;
  std::map<NodeId, NodeId> views_;  // by the end of a chain that was folded: the View it began at
};

}  // namespace

Result<Graph> fold_column_arithmetic(const Graph& graph) {
  TRY(const Graph folded, Folder(graph).run());
  return rewrite_nodes(folded, emit);  // without what nobody reads any more
}

}  // namespace kiln
