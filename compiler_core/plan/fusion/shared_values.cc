#include <algorithm>
#include <optional>

#include "compiler_core/plan/fusion/materialised_values.h"
#include "compiler_core/plan/simple_op.h"
#include "compiler_core/plan/sizes.h"

namespace kiln {
namespace {

class SharedValues {
 public:
  SharedValues(const Graph& graph, const PartitionRules& rules, const std::vector<bool>& in_place,
               MaterialisedValues& values)
      : graph_(graph), rules_(rules), in_place_(in_place), values_(values) {}

  void store() {
    std::vector<Needs> needs(static_cast<size_t>(graph_.size()));
    for (NodeId id = graph_.size(); id-- > 0;) {
      Needs need = needs[static_cast<size_t>(id)];
      if (need.several && !is_buffer(id) && worth_storing(id))
        values_.stored[static_cast<size_t>(id)] = true;
      if (values_[id]) need = {kernel_of(id), false};
      for (NodeId operand : node(id).operands) needs[static_cast<size_t>(operand)].add(need);
    }
  }

 private:
  // The kernels that compute a value: none, one, or several.
  struct Needs {
    NodeId kernel = kInvalidNode;
    bool several = false;
    void add(const Needs& other) {
      if (other.kernel == kInvalidNode) return;
      several = several || other.several || (kernel != kInvalidNode && kernel != other.kernel);
      kernel = other.kernel;
    }
  };

  const Node& node(NodeId id) const { return graph_.node(id); }
  // By one of the values that it stores.
  NodeId kernel_of(NodeId stored) const {
    const auto found = values_.beside.find(stored);
    return found == values_.beside.end() ? stored : found->second;
  }
  bool is_buffer(NodeId id) const { return values_[id] || node(id).op == Op::kInput; }

  bool worth_storing(NodeId id) const {
    const Node& n = node(id);
    if (traits(n.op).kind == OpKind::kSource || n.op == Op::kView) return false;
    if (in_place_[static_cast<size_t>(id)]) return false;
    // Reading through a Pad costs comparisons: it is stored unless its operand has half its bytes or less.
    constexpr double kMostOfPad = 0.5;
    if (n.op == Op::kPad) return !is_made_of(id, kMostOfPad);
    if (!is_elementwise(n.op)) return true;
    if (n.op == Op::kCast && is_half(node(n.operands[0]).dtype)) return false;
    // Storing such a value moves more bytes than computing it in each kernel does.
    constexpr double kSlack = 1.05;  // for operands that repeat
    if (is_made_of(id, kSlack) || (!rules_.store_shared && is_cheap(id))) return false;
    int reads = 0;
    for (NodeId operand : n.operands) {
      const Node* x = &node(operand);
      if (!is_buffer(operand) && is_elementwise(x->op)) return true;
      while (x->op == Op::kView) x = &node(x->operands[0]);
      reads += x->op != Op::kConstant && x->op != Op::kIota;
    }
    return reads >= 2;
  }

  // What computing a value again takes: simple operations on buffers, and what it reads of them, each
  // as often as a View of it is read: a pooled value is a fraction of what it is made of.
  struct Effort {
    size_t reads = 0;
    double bytes = 0;  // an element of the value, at the hints; what repeats is read once
  };
  // Nothing: much arithmetic, or none that is simple. What is rounded to a half on the way is read: where
  // it is worth it, it is stored, and takes half of what is made of it.
  std::optional<Effort> effort(NodeId id) const {
    constexpr size_t kMostNodes = 16;
    std::vector<NodeId> stack = {id}, seen;
    Effort effort;
    while (!stack.empty()) {
      const NodeId at = stack.back();
      stack.pop_back();
      if (std::find(seen.begin(), seen.end(), at) != seen.end()) continue;
      seen.push_back(at);
      const Node& n = node(at);
      const NodeId from = n.op == Op::kView ? n.operands[0] : at;
      if (is_buffer(from) || (!is_half(node(id).dtype) && is_rounded(from))) {
        ++effort.reads;
        effort.bytes += static_cast<double>(size_of(node(from).dtype)) *
                        std::min(1.0, elements(from) / elements(id));
        continue;
      }
      const bool simple = n.op == Op::kView || n.op == Op::kPad ||
                          traits(n.op).kind == OpKind::kSource || is_simple(n.op);
      if (!simple || seen.size() > kMostNodes) return std::nullopt;
      stack.insert(stack.end(), n.operands.begin(), n.operands.end());
    }
    return effort;
  }

  bool is_rounded(NodeId id) const {
    const Node& n = node(id);
    return n.op == Op::kCast && is_half(n.dtype) && !is_half(node(n.operands[0]).dtype);
  }

  // A few simple operations on a few buffers.
  bool is_cheap(NodeId id) const {
    constexpr size_t kMostReads = 3;
    const auto known = effort(id);
    return known && known->reads <= kMostReads;
  }
  // Reads no more than this part of the bytes that it has.
  bool is_made_of(NodeId id, double part) const {
    const auto known = effort(id);
    return known && known->bytes <= part * static_cast<double>(size_of(node(id).dtype));
  }
  double elements(NodeId id) const {
    return static_cast<double>(std::max<int64_t>(size_at_hints(graph_, numel(node(id).shape)), 1));
  }

  const Graph& graph_;
  const PartitionRules& rules_;
  const std::vector<bool>& in_place_;
  MaterialisedValues& values_;
};

}  // namespace

void store_shared_values(const Graph& graph, const PartitionRules& rules,
                         const std::vector<bool>& in_place, MaterialisedValues& values) {
  SharedValues(graph, rules, in_place, values).store();
}

}  // namespace kiln
