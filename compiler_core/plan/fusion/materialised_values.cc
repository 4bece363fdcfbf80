#include "compiler_core/plan/fusion/materialised_values.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "compiler_core/passes/rewrite.h"
#include "compiler_core/plan/attention/attention.h"
#include "compiler_core/plan/attention/attention_gradient.h"
#include "compiler_core/plan/attention/computed_operands.h"
#include "compiler_core/plan/channels_last.h"
#include "compiler_core/plan/fusion/element_loads.h"
#include "compiler_core/plan/fusion/narrow_products.h"
#include "compiler_core/plan/picked_products.h"
#include "compiler_core/plan/rms_norm.h"
#include "compiler_core/plan/sizes.h"

namespace kiln {
namespace {

// A chain of arithmetic longer than this is split: compilers take more than linear time over one
// expression.
constexpr int kMaxDepth = 128;
// Arithmetic on more buffers than this is split: each is an argument of its kernel.
constexpr size_t kMaxReads = 32;
// Arithmetic looked through for what it is made of.
constexpr size_t kMaxLookedThrough = 16;

// How a value that is not stored is computed, as far as one kernel must know.
struct State {
  enum Kind { kFree, kFull, kReduced };
  Kind kind = kFree;      // free: pointwise from stored values; else part of a reduction's space
  ReductionSizes sizes;   // unless free
  bool indirect = false;  // free, and reads through more than one View, or a Pad, Concat, Gather
  int depth = 0;
  bool picked = false;  // indirect, but only through Gathers of elements of buffers
};

class Chooser {
 public:
  Chooser(const Graph& graph, const PartitionRules& rules)
      : graph_(graph),
        rules_(rules),
        users_(users_of(graph)),
        attention_of_(rules.attention
                          ? attention_parts(graph, users_, rules.one_pass)
                          : std::vector<AttentionPart>(static_cast<size_t>(graph.size()))),
        is_output_(outputs_of(graph)),
        epilogue_of_(static_cast<size_t>(graph.size()), kInvalidNode),
        states_(static_cast<size_t>(graph.size())),
        reads_(static_cast<size_t>(graph.size())),
        loads_(graph, [this](NodeId id) { return is_buffer(id); }),
        in_place_(rules.computes_keys ? computed_by_attention(graph, users_, attention_of_)
                                      : std::vector<bool>(static_cast<size_t>(graph.size()))),
        in_operand_(in_place_) {
    values_.stored.assign(static_cast<size_t>(graph.size()), false);
    for (NodeId id = 0; id < graph.size(); ++id)
      if (attention_of_[static_cast<size_t>(id)].is_log_sums)
        log_sums_of_[attention_product(id)] = id;
    values_.row_updates = find_row_updates(graph);
    in_gradient_.assign(static_cast<size_t>(graph.size()), false);
    if (!rules.gradients) return;
    for (const AttentionGradient& kernel : attention_gradients(graph, users_)) {
      for (NodeId id : kernel.inside)
        in_gradient_[static_cast<size_t>(id)] = in_place_[static_cast<size_t>(id)] = true;
      for (const GradientProduct& each : kernel.products) {
        gradient_ends_.insert(each.end);
        if (each.end != kernel.products[0].end) values_.beside[each.end] = kernel.products[0].end;
      }
    }
  }

  MaterialisedValues run() {
    for (NodeId id = 0; id < graph_.size(); ++id) visit(id);
    for (NodeId id : graph_.outputs()) store(id);
    store_shared_values(graph_, rules_, in_place_, values_);
    return std::move(values_);
  }

 private:
  bool stored(NodeId id) const { return values_[id]; }
  const Node& node(NodeId id) const { return graph_.node(id); }
  bool is_buffer(NodeId id) const { return stored(id) || node(id).op == Op::kInput; }
  State state(NodeId id) const {
    return is_buffer(id) ? State{} : states_[static_cast<size_t>(id)];
  }
  void store(NodeId id) {
    if (node(id).op != Op::kInput) values_.stored[static_cast<size_t>(id)] = true;
  }
  // Stores `id`, or what it is a mere widening, repetition or reshape of.
  void store_narrow(NodeId id) {
    const Node& n = node(id);
    if (n.op == Op::kCast && is_half(node(n.operands[0]).dtype)) id = n.operands[0];
    if (node(id).op == Op::kView && (is_repetition(id) || reshapes_value(id)))
      id = node(id).operands[0];
    store(id);
  }
  bool is_repetition(NodeId view) const {
    const NodeId source = node(view).operands[0];
    return size_at_hints(graph_, numel(node(view).shape)) >
           size_at_hints(graph_, numel(node(source).shape));
  }

  bool reshapes_value(NodeId view) const {
    const Op source = node(node(view).operands[0]).op;
    return traits(source).kind != OpKind::kSource && is_reshape(graph_, node(view));
  }

  void visit(NodeId id) {
    const Node& n = node(id);
    State& result = states_[static_cast<size_t>(id)];
    if (attention_product(id) != kInvalidNode) return attention(id);
    if (in_gradient_[static_cast<size_t>(id)]) return gradient(id);
    if (in_operand_[static_cast<size_t>(id)]) return operand_of_attention(id);
    bound_reads(id);
    switch (traits(n.op).kind) {
      case OpKind::kSource:
        break;
      case OpKind::kUnary:
      case OpKind::kBinary:
      case OpKind::kCompare:
      case OpKind::kSelect:
        result = elementwise(id);
        break;
      case OpKind::kIndexMap:
        result = n.op == Op::kView ? view(id) : indirect(n);
        break;
      case OpKind::kReduce:
        result = reduce(n);
        break;
      case OpKind::kContract:
        matmul(id);
        break;
      case OpKind::kGather:
        result = indirect(n);
        break;
      case OpKind::kScan:
      case OpKind::kScatter:
      case OpKind::kSort:
      case OpKind::kCustom:
        for (NodeId operand : n.operands) store(operand);
        store(id);
        break;
      case OpKind::kRandom:
        seed(n.operands[0]);
        // Ten rounds of integer arithmetic: for pointwise kernels, of which a mask may be left.
        result.indirect = true;
        break;
    }
    if (result.depth > kMaxDepth) store(id);
    if (is_elementwise(n.op)) bound_loads(id);
  }

  // Stores what `id` would compute anew at most places, until few enough elements are read.
  void bound_loads(NodeId id) {
    while (loads_.visit(id) > ElementLoads::kMost) {
      const NodeId source = loads_.costliest(id);
      if (source == kInvalidNode) return;
      store_narrow(source);
      if (!is_buffer(source)) loads_.visit(source);  // a mere widening of what is stored
    }
  }

  // Stores operands until `id` can be computed from few enough buffers. Where that is of no use,
  // as for a Concat of many, the value counts as one read from there on.
  void bound_reads(NodeId id) {
    const Node& n = node(id);
    std::vector<NodeId>& reads = reads_[static_cast<size_t>(id)];
    while (true) {
      NodeId widest = kInvalidNode;
      size_t most = 1;
      reads.clear();
      for (NodeId operand : n.operands) {
        const std::vector<NodeId>& below = reads_[static_cast<size_t>(operand)];
        if (is_buffer(operand) || below.size() > kMaxReads) {
          reads.push_back(operand);
          continue;
        }
        reads.insert(reads.end(), below.begin(), below.end());
        if (below.size() > most) most = below.size(), widest = operand;
      }
      std::sort(reads.begin(), reads.end());
      reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
      const bool chosen = epilogue_of_[static_cast<size_t>(id)] != kInvalidNode;
      if (reads.size() <= kMaxReads || widest == kInvalidNode || chosen || n.operands.size() > 3)
        return;
      store_narrow(widest);
      if (!stored(widest)) reads_[static_cast<size_t>(widest)] = node(widest).operands;
    }
  }

  void seed(NodeId id) {
    const Node& n = node(id);
    const NodeId below = n.op == Op::kView ? n.operands[0] : id;
    if (!is_buffer(below) && traits(node(below).op).kind != OpKind::kSource) store(id);
  }

  // Around a matmul or a reduction, a kernel reads only Views of buffers.
  void store_unless_plain(NodeId id) {
    if (state(id).kind != State::kFree || is_indirect(id)) store_narrow(id);
  }

  State elementwise(NodeId id) {
    const Node& n = node(id);
    if (epilogue_of_[static_cast<size_t>(id)] != kInvalidNode) {
      for (NodeId operand : n.operands)
        if (!in_epilogue(operand, epilogue_of_[static_cast<size_t>(id)]))
          store_unless_plain(operand);
      return {};
    }
    // The operand computed last leads: the others, where they do not belong to its space, are read
    // from memory.
    NodeId lead = kInvalidNode;
    State result;
    for (NodeId operand : n.operands) {
      const State s = state(operand);
      if (s.kind != State::kFree) lead = std::max(lead, operand);
      result.picked =
          result.indirect == result.picked && s.indirect == s.picked && (result.picked || s.picked);
      result.indirect = result.indirect || s.indirect;
      result.depth = std::max(result.depth, s.depth);
    }
    if (lead != kInvalidNode) {
      const State led = state(lead);
      for (NodeId operand : n.operands) {
        const State s = state(operand);
        const bool picks = led.kind == State::kReduced && s.picked;  // one element a row
        if (s.kind != led.kind || s.sizes != led.sizes)
          if (s.kind != State::kFree || (s.indirect && !picks)) store_narrow(operand);
      }
      result.kind = led.kind;
      result.sizes = led.sizes;
      result.indirect = result.picked = false;
    }
    ++result.depth;
    return result;
  }

  bool in_epilogue(NodeId id, NodeId product) const {
    return id == product || epilogue_of_[static_cast<size_t>(id)] == product;
  }

  State view(NodeId id) {
    const Node& n = node(id);
    const NodeId x = n.operands[0];
    if (epilogue_of_[static_cast<size_t>(id)] != kInvalidNode) return {};
    State s = state(x);
    const OpKind kind = traits(node(x).op).kind;
    if (is_buffer(x) || kind == OpKind::kSource) return {};
    if (s.kind != State::kFree) {
      if (is_reshape(graph_, n)) return s;
      if (s.kind == State::kReduced && is_spread(n, s.sizes))
        return {State::kFull, s.sizes, false, s.depth};
      store_narrow(x);
      return {};
    }
    const auto multiplies = [&](NodeId user) {
      const auto narrow = reads_narrow(user);
      return narrow && narrow->reads(id);
    };
    const auto& users = users_[static_cast<size_t>(id)];
    if (!rules_.widen_stored && !users.empty() && std::ranges::all_of(users, multiplies))
      return {};  // matmul() sees to it
    // Arithmetic below a View is arithmetic on fewer elements: worth a small buffer. Not where one row
    // of the View is all that is computed.
    if (is_elementwise(node(x).op) && !values_.row_updates.row_views[static_cast<size_t>(id)]) {
      store_narrow(x);
      return {};
    }
    return {State::kFree, {}, true, s.depth};
  }

  State indirect(const Node& n) {
    State result;
    result.indirect = true;
    for (NodeId operand : n.operands) {
      if (state(operand).kind != State::kFree) store_narrow(operand);
      result.depth = std::max(result.depth, state(operand).depth + 1);
    }
    if (n.op == Op::kGather) {
      const Node& table = node(n.operands[0]);
      const bool buffer =
          table.op == Op::kView ? is_buffer(table.operands[0]) : is_buffer(n.operands[0]);
      result.picked =
          buffer && n.shape == node(n.operands[1]).shape && !state(n.operands[1]).indirect;
    }
    return result;
  }

  State reduce(const Node& n) {
    const NodeId x = n.operands[0];
    const ReductionSizes sizes = reduction_sizes(graph_, n);
    const State s = state(x);
    const bool joins = s.kind == State::kFull && s.sizes == sizes;
    if (!joins && (s.kind != State::kFree || is_indirect(x))) {
      const NodeId shared = shared_source(x);
      store_narrow(shared == kInvalidNode ? narrowest(x) : shared);
    }
    return {State::kReduced, sizes, false, state(x).depth + 1};
  }

  // Whether `id` is read indirectly now. Its state may be older than the buffers below it.
  bool is_indirect(NodeId id) const {
    std::vector<NodeId> stack = {id};
    std::set<NodeId> seen;
    while (!stack.empty()) {
      const NodeId x = stack.back();
      stack.pop_back();
      if (!state(x).indirect || !seen.insert(x).second) continue;
      if (!is_elementwise(node(x).op)) return true;
      stack.insert(stack.end(), node(x).operands.begin(), node(x).operands.end());
    }
    return false;
  }

  // The value of the fewest bytes an element among `x` and what arithmetic computes it from. The walk goes
  // down while one operand alone is read indirectly; of equal values the one nearest to `x` is taken.
  NodeId narrowest(NodeId x) const {
    NodeId best = x;
    for (NodeId id = x; id != kInvalidNode && is_elementwise(node(id).op);) {
      NodeId next = kInvalidNode;
      for (const NodeId operand : node(id).operands) {
        if (!is_indirect(operand) || operand == next) continue;
        if (next != kInvalidNode) return best;
        next = operand;
      }
      id = next;
      if (id != kInvalidNode && size_of(node(id).dtype) < size_of(node(best).dtype)) best = id;
    }
    return best;
  }

  // The value that `x` is computed from by arithmetic alone, if it is read indirectly, is as large
  // as `x` and is used elsewhere too. Stored, it serves both, and its readers do the arithmetic:
  // the rows of an embedding are kept, and not their squares besides.
  NodeId shared_source(NodeId x) const {
    NodeId source = kInvalidNode;
    std::vector<NodeId> stack = {x}, seen;
    const auto inside = [&seen](NodeId id) {
      return std::find(seen.begin(), seen.end(), id) != seen.end();
    };
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (inside(id) || !state(id).indirect) continue;
      if (seen.size() == kMaxLookedThrough) return kInvalidNode;
      seen.push_back(id);
      if (is_elementwise(node(id).op)) {
        stack.insert(stack.end(), node(id).operands.begin(), node(id).operands.end());
      } else if (source == kInvalidNode) {
        source = id;
      } else {
        return kInvalidNode;
      }
    }
    if (source == kInvalidNode || source == x || node(source).shape != node(x).shape)
      return kInvalidNode;
    const auto& users = users_[static_cast<size_t>(source)];
    const bool shared =
        is_output_[static_cast<size_t>(source)] || !std::all_of(users.begin(), users.end(), inside);
    return shared ? source : kInvalidNode;
  }

  // The operands of `product` that are not stored as they are multiplied.
  std::optional<NarrowProduct> reads_narrow(NodeId product) const {
    if (rules_.widen_stored) return std::nullopt;
    auto narrow = narrow_product(graph_, node(product));
    if (!narrow) return std::nullopt;
    for (const auto& operand : narrow->operands)
      if (operand && std::ranges::any_of(operand->nodes, [&](NodeId id) {
            return is_output_[static_cast<size_t>(id)] || (stored(id) && !is_factor(*operand, id));
          }))
        return std::nullopt;
    return narrow;
  }
  // Whether `id` is on the way to a scale or a zero, which may well be stored.
  bool is_factor(const Dequantised& operand, NodeId id) const {
    for (NodeId at : {operand.zero, operand.scale, operand.shift})
      for (; at != kInvalidNode;
           at = node(at).operands.empty() ? kInvalidNode : node(at).operands[0])
        if (at == id) return true;
    return false;
  }

  void matmul(NodeId id) {
    const auto narrow = reads_narrow(id);
    const bool picks = rules_.picks_matrices && is_picked_product(graph_, node(id));
    if (picks) pick_in_place(id);
    for (size_t i = 0; i < 2; ++i) {
      const NodeId operand = node(id).operands[i];
      if (picks && i == 1) continue;
      const Node& x = node(operand);
      if (narrow && narrow->operands[i]) {
        widen_in_place(*narrow->operands[i]);
        continue;
      }
      if (i == 0 && !narrow && norm_in_place(id)) continue;
      if (is_buffer(operand) || (x.op == Op::kView && is_buffer(x.operands[0]))) continue;
      const bool small = x.op == Op::kView && is_elementwise(node(x.operands[0]).op);
      // Channels last: as it is computed, and the product reads it in its own order.
      const bool in_order = rules_.channels_last && x.op == Op::kView && walk_order(graph_, x) &&
                            traits(node(x.operands[0]).op).kind != OpKind::kSource;
      store(small || in_order ? x.operands[0] : operand);
    }
    const bool channels_last =
        rules_.channels_last && find_channels_last_view(graph_, id) != kInvalidNode;
    const Epilogue epilogue =
        find_epilogue(graph_, users_, is_output_, epilogue_of_, id, channels_last);
    store(epilogue.end);
    if (epilogue.view == kInvalidNode && epilogue.nodes.empty()) return;
    if (epilogue.view != kInvalidNode) {
      if (!channels_last) values_.product_view[epilogue.end] = epilogue.view;
      epilogue_of_[static_cast<size_t>(epilogue.view)] = id;
    }
    for (NodeId member : epilogue.nodes) epilogue_of_[static_cast<size_t>(member)] = id;
  }

  // The table is stored whole, and nothing of what is picked from it.
  void pick_in_place(NodeId id) {
    const PickedMatrices picked = *picked_matrices(graph_, node(id));
    if (!is_buffer(picked.index)) store(picked.index);
    const NodeId a = node(id).operands[0];
    if (!is_buffer(a) && !reads_in_lines(graph_, a, true)) store(a);
    if (reads_in_lines(graph_, picked.table, false))
      store_below_views(picked.table);
    else if (!is_buffer(picked.table))
      store(picked.table);
    in_place_[static_cast<size_t>(picked.gather)] = true;
  }

  // Stores the narrow operand, and what scales and zeros are Views of.
  void widen_in_place(const Dequantised& operand) {
    store_below_views(operand.stored);
    for (NodeId at : {operand.zero, operand.scale, operand.shift}) {
      if (at == kInvalidNode) continue;
      while (node(at).op == Op::kCast || node(at).op == Op::kView) at = node(at).operands[0];
      if (traits(node(at).op).kind != OpKind::kSource) store(at);
    }
    for (const NodeId id : operand.nodes) in_place_[static_cast<size_t>(id)] = true;
  }

  // Whether `product` scales its rows as a norm does. What they are without that is stored.
  bool norm_in_place(NodeId product) {
    if (!rules_.norms_in_products || is_buffer(node(product).operands[0])) return false;
    const auto norm = find_rms_norm_of_product(graph_, users_, product);
    if (!norm) return false;
    store_below_views(norm->rows);
    for (const NodeId id : norm->nodes) in_place_[static_cast<size_t>(id)] = true;
    return true;
  }

  // Part of the gradient of an attention: what its products are rounded to is stored.
  void gradient(NodeId id) {
    for (NodeId operand : node(id).operands) {
      if (in_gradient_[static_cast<size_t>(operand)]) continue;
      if (is_elementwise(node(operand).op)) {
        store_unless_plain(operand);
        continue;
      }
      while (node(operand).op == Op::kView) operand = node(operand).operands[0];
      if (!is_buffer(operand) && traits(node(operand).op).kind != OpKind::kSource) store(operand);
    }
    if (gradient_ends_.count(id)) store(id);
  }

  NodeId attention_product(NodeId id) const {
    return attention_of_[static_cast<size_t>(id)].product;
  }

  // Part of an attention: nothing between its two matmuls is stored but the logarithms of its sums. Its
  // result is, in the order in which others read it.
  void attention(NodeId id) {
    const NodeId product = attention_product(id);
    if (attention_of_[static_cast<size_t>(id)].is_log_sums) store(id);
    for (NodeId operand : node(id).operands) {
      if (attention_product(operand) == product) continue;
      if (in_operand_[static_cast<size_t>(operand)]) continue;
      if (node(id).op == Op::kMatmul)
        store_below_views(operand);
      else if (!repeats_batches(operand, product))
        store_unless_plain(operand);
    }
    if (id != product) return;
    Epilogue epilogue = find_epilogue(graph_, users_, is_output_, epilogue_of_, product, true);
    if (epilogue.view != kInvalidNode && !keeps_rows(node(epilogue.view)))
      epilogue = {kInvalidNode, product, {}};
    if (const auto log_sums = log_sums_of_.find(product); log_sums != log_sums_of_.end()) {
      // What reads the logarithms waits for the kernel.
      if (depends(epilogue.end, log_sums->second)) epilogue = {kInvalidNode, product, {}};
      values_.beside[log_sums->second] = epilogue.end;
    }
    store(epilogue.end);
    if (epilogue.view != kInvalidNode) epilogue_of_[static_cast<size_t>(epilogue.view)] = product;
    for (NodeId member : epilogue.nodes) epilogue_of_[static_cast<size_t>(member)] = product;
  }

  // Part of a key or value that a kernel of attention computes as it reads it.
  void operand_of_attention(NodeId id) {
    for (NodeId operand : node(id).operands)
      if (!in_operand_[static_cast<size_t>(operand)] &&
          traits(node(operand).op).kind != OpKind::kSource)
        store_below_views(operand);
  }

  // Whether the scores read `id` of fewer batches, in halves or not: repeated in a View of a View.
  bool repeats_batches(NodeId id, NodeId product) const {
    if (node(id).op == Op::kCast) id = node(id).operands[0];
    if (node(id).op != Op::kView) return false;
    const NodeId inner = node(id).operands[0];
    if (node(inner).op != Op::kView || !is_buffer(node(inner).operands[0])) return false;
    const auto pattern = match_attention(graph_, users_, product, rules_.one_pass);
    return pattern && splits_batches(graph_, *pattern, id);
  }

  // Whether `on` is computed on the way to `id`.
  bool depends(NodeId id, NodeId on) const {
    std::vector<NodeId> stack = {id};
    std::set<NodeId> seen;
    while (!stack.empty()) {
      const NodeId x = stack.back();
      stack.pop_back();
      if (x == on) return true;
      if (x < on || !seen.insert(x).second) continue;
      stack.insert(stack.end(), node(x).operands.begin(), node(x).operands.end());
    }
    return false;
  }

  static bool keeps_rows(const Node& view) {
    return view.shape.back().is(1) || std::get<ViewAttr>(view.attr).strides.back().is(1);
  }

  void store_below_views(NodeId id) {
    NodeId x = id;
    while (node(x).op == Op::kView) x = node(x).operands[0];
    if (is_buffer(x)) return;
    store(traits(node(x).op).kind == OpKind::kSource ? id : x);
  }

  const Graph& graph_;
  const PartitionRules rules_;
  const std::vector<std::vector<NodeId>> users_;
  const std::vector<AttentionPart> attention_of_;  // by node
  std::vector<bool> is_output_;
  std::vector<NodeId> epilogue_of_;  // by node: the matmul it is an epilogue of
  std::vector<State> states_;
  std::vector<std::vector<NodeId>> reads_;  // by node: the buffers that it is computed from
  ElementLoads loads_;
  std::unordered_map<NodeId, NodeId> log_sums_of_;  // by the product of an attention
  std::vector<bool> in_gradient_;  // by node: inside of the gradient of an attention
  std::set<NodeId> gradient_ends_;
  std::vector<bool> in_place_;  // by node: computed by the products that read it, for themselves
  const std::vector<bool> in_operand_;  // by node: the same, by kernels of attention
  MaterialisedValues values_;
};

}  // namespace

MaterialisedValues choose_materialised_values(const Graph& graph, const PartitionRules& rules) {
  return Chooser(graph, rules).run();
}

}  // namespace kiln
