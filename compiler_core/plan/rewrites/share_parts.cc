#include <algorithm>
#include <map>
#include <set>

#include "compiler_core/ir/affine.h"
#include "compiler_core/passes/rewrite.h"
#include "compiler_core/plan/rewrites/graph_rewrites.h"

namespace kiln {
namespace {

constexpr size_t kMaxWholes = 16;  // candidates that a possible part is compared with
constexpr size_t kMaxViews = 4;    // in one reading; a longer chain counts as a value of its own
constexpr size_t kManyLeaves = 2;  // counting stops there

// A chain of Views that selects elements of a value; each View reads the result of the one before.
// Reshapes are left out, since they change axes only.
using Views = std::vector<std::pair<Shape, ViewAttr>>;
struct Reading {
  int of = -1;  // a value
  Views views;
  bool operator==(const Reading&) const = default;
};

// Finds elementwise nodes whose elements another node computes as well. Values are numbered, as in
// global value numbering: arithmetic on the same elements of some values selects those elements of
// arithmetic on the whole values. No node need compute the latter.
class Parts {
 public:
  explicit Parts(const Graph& graph) : graph_(graph), readings_(static_cast<size_t>(graph.size())) {
    std::vector<int> level(static_cast<size_t>(graph.size()), 0);
    std::map<int, std::vector<NodeId>> levels;
    const std::vector<bool> live = live_nodes(graph);
    for (NodeId id = 0; id < graph.size(); ++id) {
      const Node& node = graph.node(id);
      int& own = level[static_cast<size_t>(id)];
      for (const NodeId operand : node.operands)
        own = std::max(own, level[static_cast<size_t>(operand)]);
      if (node.op != Op::kView) ++own;
      if (live[static_cast<size_t>(id)]) levels[own].push_back(id);
    }
    for (auto& [unused, nodes] : levels) visit(std::move(nodes));
  }

  // The node of which `id` gives elements and should read them; kInvalidNode: `id` should be computed.
  // Only halves made of two large values or more are read: one read is then cheaper than several.
  NodeId instead_of(NodeId id) const {
    const Reading& own = reading(id);
    if (own.of < 0 || !is_elementwise(graph_.node(id).op) || !is_half(graph_.node(id).dtype))
      return kInvalidNode;
    const Value& whole = value(own.of);
    return whole.node == id || whole.leaves.size() < kManyLeaves ? kInvalidNode : whole.node;
  }
  // How `id` reads its elements of that node.
  const Views& views_of(NodeId id) const { return reading(id).views; }

 private:
  struct Value {
    NodeId node = kInvalidNode;  // that computes it
    Shape shape;
    // The values as large as this one that a kernel computing it would read. Empty for a value that
    // lies in memory itself.
    std::set<int> leaves;
  };

  // Visits nodes of one level and the Views of them. Larger nodes come first, so that they become the
  // wholes and smaller ones the parts.
  void visit(std::vector<NodeId> nodes) {
    const auto views = std::stable_partition(
        nodes.begin(), nodes.end(), [this](NodeId id) { return graph_.node(id).op != Op::kView; });
    std::stable_sort(nodes.begin(), views, [this](NodeId a, NodeId b) {
      return elements(graph_.node(a).shape) > elements(graph_.node(b).shape);
    });
    for (auto at = nodes.begin(); at != views; ++at)
      readings_[static_cast<size_t>(*at)] = computed(*at);
    for (auto at = views; at != nodes.end(); ++at) {
      const Node& node = graph_.node(*at);
      Reading read = viewed(reading(node.operands[0]), node.shape, std::get<ViewAttr>(node.attr));
      if (read.views.size() > kMaxViews) read = {add(*at, node.shape, {}), {}};
      readings_[static_cast<size_t>(*at)] = std::move(read);
    }
  }
  static int64_t elements(const Shape& shape) {
    const Dim all = numel(shape);
    return all.is_constant() ? all.constant() : 0;
  }
  const Reading& reading(NodeId id) const { return readings_[static_cast<size_t>(id)]; }
  const Value& value(int number) const { return values_[static_cast<size_t>(number)]; }

  int add(NodeId node, Shape shape, std::set<int> leaves) {
    values_.push_back({node, std::move(shape), std::move(leaves)});
    return static_cast<int>(values_.size()) - 1;
  }

  Reading computed(NodeId id) {
    const Node& node = graph_.node(id);
    if (!is_elementwise(node.op) || !is_constant(node.shape)) return {add(id, node.shape, {}), {}};
    std::vector<int> of;
    for (const NodeId operand : node.operands) of.push_back(reading(operand).of);
    if (traits(node.op).commutative) std::ranges::sort(of);
    const Reading& first = reading(node.operands[0]);
    const Dim whole = numel(value(first.of).shape);
    const bool are_alike = std::ranges::all_of(node.operands, [&](NodeId operand) {
      return reading(operand).views == first.views &&
             numel(value(reading(operand).of).shape) == whole;
    });
    const Key key{node.op, node.dtype, of};
    if (are_alike) {
      const auto [found, is_new] = alike_.try_emplace(key, 0);
      if (is_new) found->second = add(kInvalidNode, value(first.of).shape, leaves_of(node, whole));
      Value& made = values_[static_cast<size_t>(found->second)];
      if (first.views.empty() && made.node == kInvalidNode) made.node = id;
      return {found->second, first.views};
    }
    std::vector<Candidate>& wholes = wholes_[key];
    for (const Candidate& candidate : wholes)
      if (auto views = part_of(id, candidate.node)) return {candidate.value, *std::move(views)};
    const int made = add(id, node.shape, leaves_of(node, numel(node.shape)));
    if (wholes.size() < kMaxWholes) wholes.push_back({id, made});
    return {made, {}};
  }
  std::set<int> leaves_of(const Node& node, const Dim& whole) const {
    std::set<int> leaves;
    for (const NodeId operand : node.operands) {
      const int of = reading(operand).of;
      if (elements(value(of).shape) < elements({whole})) continue;
      if (value(of).leaves.empty() || is_half(graph_.node(operand).dtype))
        leaves.insert(of);
      else
        leaves.insert(value(of).leaves.begin(), value(of).leaves.end());
      while (leaves.size() > kManyLeaves) leaves.erase(std::prev(leaves.end()));
    }
    return leaves;
  }

  // The Views by which `id` reads its elements of `whole`, if it does.
  std::optional<Views> part_of(NodeId id, NodeId whole) const {
    const Node& node = graph_.node(id);
    if (elements(node.shape) > elements(graph_.node(whole).shape)) return std::nullopt;
    std::vector<NodeId> operands = node.operands;
    if (auto views = part_of(operands, whole)) return views;
    if (!traits(node.op).commutative) return std::nullopt;
    std::ranges::reverse(operands);
    return part_of(operands, whole);
  }
  std::optional<Views> part_of(const std::vector<NodeId>& operands, NodeId whole) const {
    const Node& node = graph_.node(whole);
    const std::vector<NodeId>& others = node.operands;
    for (size_t i = 0; i < operands.size(); ++i) {
      const Reading &part = reading(operands[i]), &all = reading(others[i]);
      if (part.of != all.of || part.views.size() < all.views.size() ||
          !std::equal(all.views.begin(), all.views.end(), part.views.begin()) ||
          numel(shape_of(all)) != numel(node.shape))
        continue;
      const Views behind(part.views.begin() + static_cast<std::ptrdiff_t>(all.views.size()),
                         part.views.end());
      const auto is_read_so = [&](size_t j) {
        Reading expected = reading(others[j]);
        for (const auto& [shape, attr] : behind) expected = viewed(expected, shape, attr);
        return expected == reading(operands[j]);
      };
      size_t same = 0;
      while (same < operands.size() && is_read_so(same)) ++same;
      if (same == operands.size()) return behind;
    }
    return std::nullopt;
  }
  const Shape& shape_of(const Reading& reading) const {
    return reading.views.empty() ? value(reading.of).shape : reading.views.back().first;
  }

  Reading viewed(Reading reading, const Shape& shape, const ViewAttr& attr) const {
    const ViewAttr view = canonical_view(shape, attr);
    if (reads_in_order(shape_of(reading), shape, view)) return reading;
    if (!reading.views.empty()) {
      const auto& [inner_shape, inner_attr] = reading.views.back();
      const Node inner{Op::kView, DType::kF32, inner_shape, {}, inner_attr};
      if (const auto composed = compose_views(inner, shape, view)) {
        reading.views.pop_back();
        return viewed(std::move(reading), shape, *composed);
      }
    }
    reading.views.emplace_back(shape, view);
    return reading;
  }

  using Key = std::tuple<Op, DType, std::vector<int>>;
  struct Candidate {
    NodeId node;
    int value;
  };
  const Graph& graph_;
  std::vector<Value> values_;
  std::vector<Reading> readings_;                 // by node
  std::map<Key, int> alike_;                      // where all operands are read through equal Views
  std::map<Key, std::vector<Candidate>> wholes_;  // where they are not
};

}  // namespace

Result<Graph> share_parts(const Graph& graph) {
  const Parts parts(graph);
  const auto read_part = [&](GraphBuilder& b, NodeId id, NodeId whole) {
    for (const auto& [shape, view] : parts.views_of(id))
      whole = b.view(whole, shape, view.strides, view.offset);
    return b.reshape(whole, graph.node(id).shape);
  };
  TRY(const Graph shared, replace_nodes(
                              graph, [&](NodeId id) { return parts.instead_of(id); }, read_part));
  return rewrite_nodes(shared, emit);  // without what nobody reads any more
}

}  // namespace kiln
