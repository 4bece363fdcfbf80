#include "compiler_core/passes/passes.h"

#include <algorithm>
#include <unordered_map>

#include "compiler_core/base/check.h"
#include "compiler_core/ir/affine.h"
#include "compiler_core/passes/rewrite.h"

namespace kiln {
namespace {

// Values are demanded from the outputs down: "node n, read through view v". A demand on an
// elementwise node becomes the same demand on its operands, a demand on a View node the composed
// demand on its operand. Only what is demanded is built, each demand once, and with an explicit
// stack, since graphs are deep.
//
// Three bounds keep the work linear in the graph, where it could be its square or worse. None of
// them depends on the order of nodes, so that equal graphs have equal results, and a result is its
// own result.
//  - A reading of so many Views that do not compose ends at a View, which is built as it stands.
//  - Views stay above a node that is read through more than so many: the steps of an unrolled
//    recurrence are slices of one value, and each would compute it anew.
//  - Where all readings together are still more than so many, Views stay above every node. No
//    program that a person writes comes near it (the models of tests/graphs: 0.8 readings a node).
constexpr size_t kMostViewsOfAReading = 8;
constexpr size_t kMostReadingsOfANode = 64;
constexpr size_t kMostReadingsPerNode = 2;
constexpr size_t kReadingsOfAnyGraph = 1 << 10;

class Sinker {
 public:
  Sinker(const Graph& graph, SinkLimit limit)
      : rewrite_(graph), graph_(graph), limit_(limit), may_repeat_(repeatable_nodes()) {}

  Result<Graph> run() {
    if (!count_readings(kMostReadingsOfANode)) CHECK(count_readings(0), "nothing is read through");
    for (NodeId id : graph_.outputs()) demand({id, kWhole, kNoOrigin});
    return rewrite_.finish();
  }

 private:
  // One View; a reading is a chain of them, innermost first: more than one where two would not
  // compose. An index into readings_; kWhole reads the node as it stands.
  struct OneView {
    Shape shape;
    ViewAttr attr;
    bool operator==(const OneView&) const = default;
  };
  using Reading = std::vector<OneView>;
  using ReadingId = int32_t;
  static constexpr ReadingId kWhole = -1;
  struct Demand {
    NodeId node;
    ReadingId reading;
    OriginId origin;  // of the View that the reading came from
  };

  // Nodes that may be computed for each reader of an element.
  std::vector<bool> repeatable_nodes() const {
    if (limit_ == SinkLimit::kNoExtraWork) return std::vector<bool>(graph_.nodes().size(), false);
    if (limit_ == SinkLimit::kRecompute) return std::vector<bool>(graph_.nodes().size(), true);
    std::vector<bool> repeatable = pointwise_nodes();
    if (limit_ != SinkLimit::kRecomputeUnstored) return repeatable;
    for (const Node& node : graph_.nodes()) {
      if (node.op != Op::kMatmul) continue;
      for (const NodeId operand : node.operands) {
        NodeId below = operand;
        while (graph_.node(below).op == Op::kView) below = graph_.node(below).operands[0];
        if (repeats(graph_.node(operand).shape, graph_.node(below).shape))
          repeatable[static_cast<size_t>(below)] = false;
      }
    }
    return repeatable;
  }

  // Inputs, constants, iotas, and elementwise nodes and Views over such nodes only.
  std::vector<bool> pointwise_nodes() const {
    std::vector<bool> pointwise;
    for (const Node& node : graph_.nodes()) {
      bool all = traits(node.op).kind == OpKind::kSource || is_elementwise(node.op) ||
                 node.op == Op::kView;
      for (NodeId operand : node.operands) all = all && pointwise[static_cast<size_t>(operand)];
      pointwise.push_back(all);
    }
    return pointwise;
  }

  const Reading& reading(ReadingId id) const { return readings_[static_cast<size_t>(id)]; }

  NodeId* built(const Demand& demand) {
    if (demand.reading == kWhole) return &rewrite_[demand.node];
    const uint64_t key =
        static_cast<uint64_t>(demand.node) << 32 | static_cast<uint32_t>(demand.reading);
    return &viewed_.try_emplace(key, kInvalidNode).first->second;
  }

  // The demand on the nearest node below that is no View.
  Demand resolved(Demand demand) {
    while (graph_.node(demand.node).op == Op::kView) {
      const Node& node = graph_.node(demand.node);
      Reading chain;
      if (demand.reading != kWhole) chain = reading(demand.reading);
      std::optional<ViewAttr> composed;
      if (!chain.empty()) composed = compose_views(node, chain[0].shape, chain[0].attr);
      if (!composed && chain.size() >= kMostViewsOfAReading) break;
      if (composed)
        chain[0].attr = *std::move(composed);
      else
        chain.insert(chain.begin(), {node.shape, std::get<ViewAttr>(node.attr)});
      const OriginId origin = graph_.origin_of(demand.node);
      demand = {node.operands[0], intern(std::move(chain), node.operands[0]), origin};
    }
    return demand;
  }

  ReadingId intern(Reading chain, NodeId below) {
    chain[0].attr = canonical_view(chain[0].shape, std::move(chain[0].attr));
    if (is_identity_view(graph_.node(below).shape, chain[0].shape, chain[0].attr))
      chain.erase(chain.begin());
    if (chain.empty()) return kWhole;
    const size_t hash = hash_of(chain);
    const auto [begin, end] = reading_ids_.equal_range(hash);
    for (auto it = begin; it != end; ++it)
      if (reading(it->second) == chain) return it->second;
    readings_.push_back(std::move(chain));
    const ReadingId id = static_cast<ReadingId>(readings_.size()) - 1;
    reading_ids_.emplace(hash, id);
    return id;
  }

  static size_t hash_of(const Reading& chain) {
    size_t hash = chain.size();
    const auto mix = [&hash](const Dim& dim) {
      hash = (hash ^ (dim.is_constant() ? static_cast<size_t>(dim.constant()) : 7)) *
             0x9e3779b97f4a7c15u;
      hash ^= hash >> 29;
    };
    for (const OneView& view : chain) {
      for (const Dim& dim : view.shape) mix(dim);
      for (const Dim& dim : view.attr.strides) mix(dim);
      mix(view.attr.offset);
    }
    return hash;
  }

  // Whether a value that is read in this shape has elements that are read more than once, perhaps.
  bool repeats(const Shape& read, const Shape& shape) const {
    return lower_bound(numel(shape) - numel(read), graph_.symbols()) < 0;
  }

  // Whether what `demand` reads may be computed for what it reads alone. REQUIRES: not kWhole.
  bool may_sink(const Demand& demand) const {
    const Node& node = graph_.node(demand.node);
    if (!is_elementwise(node.op)) return false;
    return may_repeat_[static_cast<size_t>(demand.node)] ||
           !repeats(reading(demand.reading).back().shape, node.shape);
  }
  bool sinks_through(const Demand& demand) const {
    return !barrier_[static_cast<size_t>(demand.node)] && may_sink(demand);
  }

  // Finds the nodes that more than `most` readings would sink through, from the outputs down: every
  // user of a node has a greater id, so all readings of a node are known when its turn comes. False
  // when there are too many readings in all.
  bool count_readings(size_t most) {
    barrier_.assign(static_cast<size_t>(graph_.size()), false);
    std::vector<std::vector<ReadingId>> sinking(barrier_.size());  // without repetition
    std::vector<bool> whole(barrier_.size(), false);
    const auto add = [&](const Demand& demand) {
      const size_t at = static_cast<size_t>(demand.node);
      if (demand.reading == kWhole || barrier_[at]) {
        whole[at] = true;
        return;
      }
      if (std::find(sinking[at].begin(), sinking[at].end(), demand.reading) != sinking[at].end())
        return;
      if (sinking[at].size() < most) {
        sinking[at].push_back(demand.reading);
      } else {
        barrier_[at] = whole[at] = true;
        sinking[at].clear();
      }
    };
    const auto demand = [&](Demand wanted) {
      if (wanted.reading != kWhole && !may_sink(wanted)) wanted.reading = squeezed(wanted.node);
      add(wanted);
    };
    for (NodeId id : graph_.outputs()) demand(resolved({id, kWhole, kNoOrigin}));
    size_t total = 0;
    for (NodeId id = graph_.size(); id-- > 0;) {
      const size_t at = static_cast<size_t>(id);
      if (total += sinking[at].size();
          total > kReadingsOfAnyGraph + kMostReadingsPerNode * graph_.nodes().size())
        return false;
      if (whole[at]) sinking[at].push_back(kWhole);
      for (const ReadingId reading : sinking[at])
        for (NodeId operand : graph_.node(id).operands)
          demand(resolved({operand, reading, kNoOrigin}));
    }
    return true;
  }

  // A broadcast above an elementwise node reads the flattened node, so the node's axes of size 1
  // say nothing: they are dropped, and keepdim=True meets keepdim=False.
  ReadingId squeezed(NodeId id) {
    const Node& node = graph_.node(id);
    Shape shape;
    for (const Dim& dim : node.shape)
      if (!dim.is(1)) shape.push_back(dim);
    if (!is_elementwise(node.op) || shape.size() == node.shape.size()) return kWhole;
    std::vector<Dim> strides = contiguous_strides(shape);
    return intern({{std::move(shape), {std::move(strides), 0}}}, id);
  }

  // How a demand is met: by demands below it, then by a node, or by its views on top.
  struct Step {
    std::vector<Demand> below;
    bool views_on_top;
  };
  Step step_for(const Demand& demand) {
    if (demand.reading != kWhole && !sinks_through(demand)) {
      const bool barrier = barrier_[static_cast<size_t>(demand.node)];
      const ReadingId below = barrier ? kWhole : squeezed(demand.node);
      return {{{demand.node, below, demand.origin}}, true};
    }
    Step step{{}, false};
    for (NodeId operand : graph_.node(demand.node).operands)
      step.below.push_back(resolved({operand, demand.reading, demand.origin}));
    return step;
  }

  NodeId build(const Demand& demand, const Step& step) {
    GraphBuilder& builder = rewrite_.builder;
    const Node& node = graph_.node(demand.node);
    builder.set_origin(step.views_on_top ? demand.origin : graph_.origin_of(demand.node));
    if (step.views_on_top) {
      NodeId result = *built(step.below[0]);
      for (const OneView& view : reading(demand.reading))
        result = builder.view(result, view.shape, view.attr.strides, view.attr.offset);
      return result;
    }
    std::vector<NodeId> operands;
    for (const Demand& below : step.below) operands.push_back(*built(below));
    const Shape& shape =
        demand.reading == kWhole ? node.shape : reading(demand.reading).back().shape;
    if (node.op == Op::kView) return emit(builder, node, std::move(operands));
    return builder.add({node.op, node.dtype, shape, std::move(operands), node.attr});
  }

  void demand(Demand root) {
    const NodeId output = root.node;
    root = resolved(root);
    std::vector<Demand> stack = {root};
    while (!stack.empty() && rewrite_.builder.ok()) {
      const Demand top = stack.back();
      if (*built(top) != kInvalidNode) {
        stack.pop_back();
        continue;
      }
      const Step step = step_for(top);
      const size_t before = stack.size();
      for (const Demand& below : step.below)
        if (*built(below) == kInvalidNode) stack.push_back(below);
      if (stack.size() != before) continue;
      *built(top) = build(top, step);
      stack.pop_back();
    }
    rewrite_[output] = *built(root);  // the slot of a View node is free: demands skip Views
  }

  Rewrite rewrite_;
  const Graph& graph_;
  const SinkLimit limit_;
  const std::vector<bool> may_repeat_;
  std::vector<Reading> readings_;
  std::unordered_multimap<size_t, ReadingId> reading_ids_;
  std::unordered_map<uint64_t, NodeId> viewed_;
  std::vector<bool> barrier_;  // by node: Views stay above it
};

}  // namespace

Result<Graph> sink_views(const Graph& graph, SinkLimit limit) {
  return Sinker(graph, limit).run();
}

}  // namespace kiln
