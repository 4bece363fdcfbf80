#include "compiler_core/plan/attention/computed_operands.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "compiler_core/passes/rewrite.h"
#include "compiler_core/plan/simple_op.h"

namespace kiln {
namespace {

constexpr size_t kMostOperandNodes = 24;  // of one operand
constexpr int64_t kChunkBytes = 16;       // bytes that a thread computes at once
constexpr int64_t kMostHeadBytes = 512;   // bytes of a head for which any device has room

// Below `operand`, down to nodes that `ends` is true of, which are left out.
std::set<NodeId> operand_nodes(const Graph& graph, NodeId operand,
                               const std::function<bool(NodeId)>& ends) {
  std::set<NodeId> nodes;
  std::vector<NodeId> stack = {operand};
  while (!stack.empty()) {
    const NodeId id = stack.back();
    stack.pop_back();
    if (ends(id) || !nodes.insert(id).second) continue;
    const auto& operands = graph.node(id).operands;
    stack.insert(stack.end(), operands.begin(), operands.end());
  }
  return nodes;
}

// The two of an attention.
struct AttentionProducts {
  NodeId first = kInvalidNode, second = kInvalidNode;
};

bool has_few_rows(const Graph& graph, const AttentionProducts& products) {
  const Shape& shape = graph.node(products.second).shape;
  const Dim& rows = shape[shape.size() - 2];
  return rows.is_constant() && rows.constant() <= kMostRowsOfComputed;
}

// Whether heads are whole chunks of what they are of, and not too many.
bool has_heads_of_chunks(const Graph& graph, const AttentionProducts& products) {
  const auto fits = [&](const Dim& head, NodeId operand) {
    if (!head.is_constant()) return false;
    const int64_t bytes = head.constant() * size_of(graph.node(operand).dtype);
    return bytes % kChunkBytes == 0 && bytes <= kMostHeadBytes;
  };
  const Node &first = graph.node(products.first), &second = graph.node(products.second);
  return fits(graph.node(first.operands[0]).shape.back(), first.operands[1]) &&
         fits(second.shape.back(), second.operands[1]);
}

bool is_computing(const Node& node) {
  return is_elementwise(node.op) || node.op == Op::kGather;
}

class OperandFinder {
 public:
  OperandFinder(const Graph& graph, const std::vector<std::vector<NodeId>>& users,
                const std::vector<AttentionPart>& parts)
      : graph_(graph), users_(users), parts_(parts), is_output_(outputs_of(graph)) {}

  std::vector<bool> run() {
    std::vector<bool> computed(static_cast<size_t>(graph_.size()), false);
    std::map<NodeId, AttentionProducts> attentions;  // by their second product
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const NodeId product = parts_[static_cast<size_t>(id)].product;
      if (node(id).op != Op::kMatmul || product == kInvalidNode) continue;
      (id == product ? attentions[product].second : attentions[product].first) = id;
    }
    for (const auto& [product, products] : attentions) {
      if (!has_few_rows(graph_, products) || !has_heads_of_chunks(graph_, products)) continue;
      for (const NodeId matmul : {products.first, products.second})
        if (pays(matmul, matmul == product)) readers_.insert(matmul);
    }
    // What others read too is stored: nodes come behind all that read them.
    for (NodeId id = graph_.size(); id-- > 0;)
      computed[static_cast<size_t>(id)] =
          !ends(id) && std::ranges::all_of(users_[static_cast<size_t>(id)], [&](NodeId user) {
            return computed[static_cast<size_t>(user)] || reads_second(user, id);
          });
    return computed;
  }

 private:
  const Node& node(NodeId id) const { return graph_.node(id); }

  bool is_in_memory(NodeId id) const {
    return node(id).op == Op::kInput || stands_alone(node(id).op) ||
           is_output_[static_cast<size_t>(id)];
  }
  bool ends(NodeId id) const {
    const Op op = node(id).op;
    const bool is_part = is_simple(op) || op == Op::kView || op == Op::kGather;
    return !is_part || is_in_memory(id) || users_[static_cast<size_t>(id)].empty();
  }
  bool reads_second(NodeId matmul, NodeId id) const {
    return readers_.contains(matmul) && node(matmul).operands[1] == id &&
           node(matmul).operands[0] != id;
  }

  // Whether the second operand of `matmul` is worth computing as it is read.
  bool pays(NodeId matmul, bool is_value) const {
    const NodeId operand = node(matmul).operands[1];
    const size_t rank = node(operand).shape.size();
    const Shape& shape = node(matmul).shape;
    if (!shape[rank - 2].is(1) && repeats(operand)) return false;
    const std::set<NodeId> below =
        operand_nodes(graph_, operand, [this](NodeId id) { return ends(id); });
    if (below.size() > kMostOperandNodes ||
        std::ranges::none_of(below, [this](NodeId id) { return is_computing(node(id)); }))
      return false;
    return is_along_heads(operand, rank - (is_value ? 1 : 2)) &&
           std::ranges::all_of(below, [&](NodeId id) { return reads_memory(id, below); });
  }

  // Whether a node of `below` reads nothing else but what lies in memory in any case. An index is small, and
  // may well be stored.
  bool reads_memory(NodeId id, const std::set<NodeId>& below) const {
    const auto& operands = node(id).operands;
    return std::ranges::all_of(operands, [&](NodeId from) {
      return below.contains(from) || is_in_memory(from) ||
             traits(node(from).op).kind == OpKind::kSource ||
             (node(id).op == Op::kGather && from == operands[1]);
    });
  }

  // Whether queries share heads of `operand`.
  bool repeats(NodeId operand) const {
    for (NodeId id = operand; node(id).op == Op::kView; id = node(id).operands[0]) {
      const auto& strides = std::get<ViewAttr>(node(id).attr).strides;
      for (size_t i = 0; i < strides.size(); ++i)
        if (strides[i].is(0) && !node(id).shape[i].is(1)) return true;
    }
    return false;
  }

  // Whether neighbours of a head, along `axis`, are neighbours in memory too, or one element, in all that is
  // read.
  bool is_along_heads(NodeId id, size_t axis) const {
    if (is_elementwise(node(id).op))
      return std::ranges::all_of(node(id).operands,
                                 [&](NodeId x) { return is_along_heads(x, axis); });
    if (node(id).op != Op::kView) return axis + 1 == node(id).shape.size();
    const Dim& stride = std::get<ViewAttr>(node(id).attr).strides[axis];
    return stride.is(0) || stride.is(1);
  }

  const Graph& graph_;
  const std::vector<std::vector<NodeId>>& users_;
  const std::vector<AttentionPart>& parts_;
  const std::vector<bool> is_output_;
  std::set<NodeId> readers_;  // matmuls whose second operand is computed
};

}  // namespace

std::vector<NodeId> computed_operand(const Graph& graph, NodeId operand) {
  const std::set<NodeId> below = operand_nodes(
      graph, operand, [&](NodeId id) { return traits(graph.node(id).op).kind == OpKind::kSource; });
  const bool is_computed =
      std::ranges::any_of(below, [&](NodeId id) { return is_computing(graph.node(id)); });
  return is_computed ? std::vector<NodeId>(below.begin(), below.end()) : std::vector<NodeId>();
}

Status check_computed_operands(const Graph& graph, const AttentionPattern& pattern) {
  const auto refuse = [](std::string_view rule) {
    return fail(Code::kUnsupported, "an attention operand that is computed " + std::string(rule));
  };
  const AttentionProducts products{pattern.query_key, pattern.product};
  bool is_any = false;
  for (const NodeId matmul : {products.first, products.second})
    for (const NodeId id : computed_operand(graph, graph.node(matmul).operands[1])) {
      is_any = true;
      if (!is_computing(graph.node(id)) && graph.node(id).op != Op::kView)
        return refuse("is made of more than arithmetic, Views and Gathers");
    }
  if (is_any && !has_few_rows(graph, products)) return refuse("has at most 16 rows of queries");
  if (is_any && !has_heads_of_chunks(graph, products))
    return refuse("has heads of whole chunks of 16 bytes, 512 at most");
  return {};
}

std::vector<bool> computed_by_attention(const Graph& graph,
                                        const std::vector<std::vector<NodeId>>& users,
                                        const std::vector<AttentionPart>& parts) {
  return OperandFinder(graph, users, parts).run();
}

}  // namespace kiln
