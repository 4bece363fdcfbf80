#include "compiler_core/plan/fusion/materialised_values.h"

#include <algorithm>
#include <set>

#include "compiler_core/plan/picked_products.h"
#include "compiler_core/plan/sizes.h"

namespace kiln {
namespace {

constexpr size_t kMaxStep = 48;       // nodes between two waists: gelu has some ten
constexpr size_t kMaxEpilogue = 256;  // nodes in all

class Walk {
 public:
  Walk(const Graph& graph, const std::vector<std::vector<NodeId>>& users,
       const std::vector<bool>& is_output, const std::vector<NodeId>& owner)
      : graph_(graph), users_(users), is_output_(is_output), owner_(owner) {}

  Epilogue from(NodeId product, bool keeps_view) {
    Epilogue epilogue{kInvalidNode, product, {}};
    const NodeId view = only_user(product);
    NodeId start = product;
    if (view != kInvalidNode && graph_.node(view).op == Op::kView &&
        (keeps_view || !output(view)) && walk_order(graph_, graph_.node(view)))
      start = epilogue.view = view;
    NodeId end = start;
    while (epilogue.nodes.size() < kMaxEpilogue && advance(end, epilogue.nodes)) {
    }
    end = narrowest(end, epilogue.nodes);
    if (!keeps_view && (end == start || !may_store(epilogue.view, end)))
      return {kInvalidNode, product, {}};
    epilogue.end = end;
    return epilogue;
  }

 private:
  bool output(NodeId id) const { return is_output_[static_cast<size_t>(id)]; }
  const std::vector<NodeId>& users(NodeId id) const { return users_[static_cast<size_t>(id)]; }

  NodeId only_user(NodeId id) const {
    const auto& all = users(id);
    const bool one = !output(id) && !all.empty() &&
                     std::all_of(all.begin(), all.end(), [&](NodeId u) { return u == all[0]; });
    return one ? all[0] : kInvalidNode;
  }

  // Moves `end` to the next waist and appends the nodes passed. False when there is none in reach.
  bool advance(NodeId& end, std::vector<NodeId>& nodes) const {
    if (output(end) || users(end).empty()) return false;
    std::set<NodeId> pending(users(end).begin(), users(end).end());
    std::vector<NodeId> passed;
    while (passed.size() < kMaxStep) {
      const NodeId next = *pending.begin();
      const bool claimed = owner_[static_cast<size_t>(next)] != kInvalidNode;
      if (claimed || !is_elementwise(graph_.node(next).op)) return false;
      pending.erase(pending.begin());
      passed.push_back(next);
      if (pending.empty()) {  // everything met in `next`
        end = next;
        nodes.insert(nodes.end(), passed.begin(), passed.end());
        return true;
      }
      if (output(next) || users(next).empty()) return false;
      pending.insert(users(next).begin(), users(next).end());
    }
    return false;
  }

  // Storing fp16 or bf16 and widening it at every use costs half the memory traffic.
  NodeId narrowest(NodeId end, std::vector<NodeId>& nodes) const {
    while (!nodes.empty() && !output(end)) {
      const Node& node = graph_.node(end);
      const NodeId source = node.operands[0];
      if (node.op != Op::kCast || !is_half(graph_.node(source).dtype)) break;
      if (nodes.size() < 2 || nodes[nodes.size() - 2] != source || only_user(source) != end) break;
      nodes.pop_back();
      end = source;
    }
    return end;
  }

  // The buffer holds the product's order. An output of the program must come in its own, and so
  // must what is read by an op that reads buffers as they lie.
  bool may_store(NodeId view, NodeId end) const {
    if (view == kInvalidNode || is_reshape(graph_, graph_.node(view))) return true;
    return !output(end) && std::none_of(users(end).begin(), users(end).end(), [this](NodeId user) {
      return stands_alone(graph_.node(user).op) || picks_matrices(user);
    });
  }

  // Itself, or by way of a View.
  bool picks_matrices(NodeId user) const {
    const auto picks = [this](NodeId id) { return picked_matrices(graph_, graph_.node(id)); };
    if (graph_.node(user).op != Op::kView) return picks(user).has_value();
    return std::any_of(users(user).begin(), users(user).end(), picks);
  }

  const Graph& graph_;
  const std::vector<std::vector<NodeId>>& users_;
  const std::vector<bool>& is_output_;
  const std::vector<NodeId>& owner_;
};

}  // namespace

Epilogue find_epilogue(const Graph& graph, const std::vector<std::vector<NodeId>>& users,
                       const std::vector<bool>& is_output, const std::vector<NodeId>& owner,
                       NodeId product, bool keeps_view) {
  return Walk(graph, users, is_output, owner).from(product, keeps_view);
}

}  // namespace kiln
