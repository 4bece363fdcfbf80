#include <algorithm>

#include "compiler_core/plan/fusion/materialised_values.h"

namespace kiln {
namespace {

// One instruction, on any target.
bool is_simple(Op op) {
  switch (op) {
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kMax:
    case Op::kMin:
    case Op::kNeg:
    case Op::kAbs:
    case Op::kCast:
    case Op::kSelect:
      return true;
    default:
      return traits(op).kind == OpKind::kCompare;
  }
}

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
    if (!is_elementwise(n.op)) return true;
    if (n.op == Op::kCast && is_half(node(n.operands[0]).dtype)) return false;
    if (!rules_.store_shared && is_cheap(id)) return false;
    int reads = 0;
    for (NodeId operand : n.operands) {
      const Node* x = &node(operand);
      if (!is_buffer(operand) && is_elementwise(x->op)) return true;
      while (x->op == Op::kView) x = &node(x->operands[0]);
      reads += x->op != Op::kConstant && x->op != Op::kIota;
    }
    return reads >= 2;
  }

  // A few simple operations on a few buffers, each as often as a View of it is read: a pooled value is
  // a fraction of what it is made of.
  bool is_cheap(NodeId id) const {
    constexpr size_t kMostNodes = 8, kMostReads = 3;
    std::vector<NodeId> stack = {id}, seen;
    size_t reads = 0;
    while (!stack.empty()) {
      const NodeId at = stack.back();
      stack.pop_back();
      if (std::find(seen.begin(), seen.end(), at) != seen.end()) continue;
      seen.push_back(at);
      const Node& n = node(at);
      if (is_buffer(at) || (n.op == Op::kView && is_buffer(n.operands[0]))) {
        if (++reads > kMostReads) return false;
        continue;
      }
      const bool simple =
          n.op == Op::kView || traits(n.op).kind == OpKind::kSource || is_simple(n.op);
      if (!simple || seen.size() > 2 * kMostNodes) return false;
      stack.insert(stack.end(), n.operands.begin(), n.operands.end());
    }
    return true;
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
