#include "compiler_core/passes/passes.h"

#include <algorithm>

#include "compiler_core/ir/interpreter.h"
#include "compiler_core/passes/constant_value.h"
#include "compiler_core/passes/rewrite.h"

namespace kiln {
namespace {

constexpr int64_t kMostElements = 1 << 16;       // of a value
constexpr int64_t kMostElementsOfAll = 1 << 20;  // where all values have more, the largest are left

bool all_constant(const std::vector<Dim>& dims) {
  return std::all_of(dims.begin(), dims.end(), [](const Dim& dim) { return dim.is_constant(); });
}

bool has_fixed_sizes(const Node& node) {
  if (!is_constant(node.shape)) return false;
  if (const auto* view = std::get_if<ViewAttr>(&node.attr))
    return all_constant(view->strides) && view->offset.is_constant();
  if (const auto* pad = std::get_if<PadAttr>(&node.attr))
    return all_constant(pad->low) && all_constant(pad->high);
  return true;
}

// The interpreter's value is the value: nothing in it depends on order, a seed, or a user's code.
bool is_determined(const Node& node) {
  switch (traits(node.op).kind) {
    case OpKind::kSource:
      return node.op != Op::kInput;
    case OpKind::kUnary:
    case OpKind::kBinary:
    case OpKind::kCompare:
    case OpKind::kSelect:
    case OpKind::kIndexMap:
    case OpKind::kGather:
    case OpKind::kSort:
      return true;
    case OpKind::kReduce:
      return !is_float(node.dtype) || node.op == Op::kReduceMax || node.op == Op::kReduceMin;
    case OpKind::kScan:
    case OpKind::kContract:
    case OpKind::kScatter:
      return !is_float(node.dtype);
    case OpKind::kRandom:
    case OpKind::kCustom:
      return false;
  }
  return false;
}

// Integer division by zero, and floats cast to integers that do not hold them.
bool is_unspecified(const Node& node, const std::vector<const Tensor*>& operands) {
  const Tensor& last = *operands.back();
  if (node.op == Op::kDiv || node.op == Op::kRem) {
    if (is_float(node.dtype)) return false;
    for (int64_t i = 0; i < last.numel(); ++i)
      if (last.get_int(i) == 0) return true;
  }
  if (node.op == Op::kCast && is_float(last.dtype()) && is_integer(node.dtype))
    for (int64_t i = 0; i < last.numel(); ++i)
      if (!fits_integer(node.dtype, last.get(i))) return true;
  return false;
}

class Folder {
 public:
  explicit Folder(const Graph& graph)
      : graph_(graph), value_of_(static_cast<size_t>(graph.size()), kNotEvaluated) {}

  Result<Graph> run() {
    TRY_STATUS(evaluate());
    return replace_where(graph_, [this](Rewrite& rewrite, NodeId id) {
      const Tensor* value = value_of(id);
      return value == nullptr ? kInvalidNode : respelled(rewrite.builder, graph_.node(id), *value);
    });
  }

 private:
  static constexpr int kNotEvaluated = -1;
  static constexpr int64_t kNever = INT64_MAX;

  const Tensor* value_of(NodeId id) const {
    const int index = value_of_[static_cast<size_t>(id)];
    return index == kNotEvaluated ? nullptr : &values_[static_cast<size_t>(index)];
  }

  // By node: the elements of the largest value that it is computed from, itself included; kNever
  // for what is not to be evaluated.
  std::vector<int64_t> sizes_needed() const {
    std::vector<int64_t> needed;
    const std::vector<bool> live = live_nodes(graph_);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      needed.push_back(kNever);
      if (!live[static_cast<size_t>(id)] || !is_determined(node) || !has_fixed_sizes(node))
        continue;
      const Dim size = numel(node.shape);
      if (!size.is_constant() || size.constant() < 1) continue;
      int64_t most = size.constant();
      for (NodeId operand : node.operands)
        most = std::max(most, needed[static_cast<size_t>(operand)]);
      needed.back() = most <= kMostElements ? most : kNever;
    }
    return needed;
  }

  // The largest power of four so that all values that need no more fit into kMostElementsOfAll: a
  // choice that does not depend on the order of nodes.
  int64_t limit(const std::vector<int64_t>& needed) const {
    for (int64_t most = kMostElements; most > 0; most /= 4) {
      int64_t elements = 0;
      for (NodeId id = 0; id < graph_.size(); ++id)
        if (needed[static_cast<size_t>(id)] <= most)
          elements += numel(graph_.node(id).shape).constant();
      if (elements <= kMostElementsOfAll) return most;
    }
    return 0;
  }

  // One run of the interpreter over everything that is worth it, all of it outputs.
  Status evaluate() {
    GraphBuilder builder;
    std::vector<NodeId> map(static_cast<size_t>(graph_.size()), kInvalidNode), outputs, asked;
    const std::vector<int64_t> needed = sizes_needed();
    const int64_t most = limit(needed);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (needed[static_cast<size_t>(id)] > most) continue;
      const Node& node = graph_.node(id);
      std::vector<NodeId> operands;
      for (NodeId operand : node.operands) operands.push_back(map[static_cast<size_t>(operand)]);
      map[static_cast<size_t>(id)] =
          builder.add({node.op, node.dtype, node.shape, std::move(operands), node.attr});
      outputs.push_back(map[static_cast<size_t>(id)]);
      asked.push_back(id);
    }
    if (asked.empty()) return {};
    TRY(const Graph constants, builder.finish(std::move(outputs)));
    TRY(values_, interpret(constants, {}));
    for (size_t i = 0; i < asked.size(); ++i)
      if (is_specified(graph_.node(asked[i])))
        value_of_[static_cast<size_t>(asked[i])] = static_cast<int>(i);
    return {};
  }

  bool is_specified(const Node& node) const {
    std::vector<const Tensor*> operands;
    for (NodeId operand : node.operands) {
      operands.push_back(value_of(operand));
      if (operands.back() == nullptr) return false;
    }
    return operands.empty() || !is_unspecified(node, operands);
  }

  // The spelling that every computation of `value` is given; kInvalidNode where it has none.
  static NodeId respelled(GraphBuilder& b, const Node& node, const Tensor& value) {
    if (const auto number = uniform(value)) return filled(b, node.dtype, *number, node.shape);
    if (node.dtype == DType::kI64 || node.dtype == DType::kI32) return affine(b, node, value);
    return kInvalidNode;
  }

  static ConstantAttr element(const Tensor& value, int64_t i) {
    if (is_float(value.dtype())) return constant_bits(value.dtype(), value.get(i));
    return {static_cast<uint64_t>(value.get_int(i))};
  }

  static std::optional<ConstantAttr> uniform(const Tensor& value) {
    const ConstantAttr first = element(value, 0);
    for (int64_t i = 1; i < value.numel(); ++i)
      if (element(value, i) != first) return std::nullopt;
    return first;
  }

  static NodeId affine(GraphBuilder& b, const Node& node, const Tensor& value) {
    const std::vector<int64_t> steps = steps_of(value);
    int64_t least = 0, most = 0;  // beside the first element
    for (size_t k = 0; k < steps.size(); ++k) {
      int64_t span = 0;
      if (__builtin_mul_overflow(steps[k], value.sizes()[k] - 1, &span) ||
          __builtin_add_overflow(span < 0 ? least : most, span, span < 0 ? &least : &most))
        return kInvalidNode;
    }
    const int64_t first = value.get_int(0), limit = int64_t{1} << 31;
    if (least < -limit / 2 || most > limit / 2) return kInvalidNode;
    if (first < -limit / 2 || first > limit / 2) return kInvalidNode;
    if (!is_affine(value, first, steps)) return kInvalidNode;
    const NodeId iota = b.iota(node.dtype, most - least + 1);
    const NodeId rising =
        b.view(iota, node.shape, std::vector<Dim>(steps.begin(), steps.end()), -least);
    if (first + least == 0) return rising;
    const ConstantAttr base{static_cast<uint64_t>(first + least)};
    return b.binary(Op::kAdd, rising, filled(b, node.dtype, base, node.shape));
  }

  // The amount that one step along each axis adds to the first element; 0 along axes of size 1.
  static std::vector<int64_t> steps_of(const Tensor& value) {
    std::vector<int64_t> steps(value.sizes().size(), 0);
    int64_t stride = 1;
    for (size_t k = steps.size(); k-- > 0; stride *= value.sizes()[k])
      if (value.sizes()[k] > 1 &&
          __builtin_sub_overflow(value.get_int(stride), value.get_int(0), &steps[k]))
        steps[k] = INT64_MAX;
    return steps;
  }

  static bool is_affine(const Tensor& value, int64_t first, const std::vector<int64_t>& steps) {
    const std::vector<int64_t>& sizes = value.sizes();
    std::vector<int64_t> at(sizes.size(), 0);
    int64_t expected = first;
    for (int64_t i = 0; i < value.numel(); ++i) {
      if (value.get_int(i) != expected) return false;
      for (size_t k = sizes.size(); k-- > 0;) {
        expected += steps[k];
        if (++at[k] < sizes[k]) break;
        expected -= steps[k] * sizes[k];
        at[k] = 0;
      }
    }
    return true;
  }

  const Graph& graph_;
  std::vector<Tensor> values_;
  std::vector<int> value_of_;  // by node: an index into values_
};

}  // namespace

Result<Graph> fold_constants(const Graph& graph) {
  return Folder(graph).run();
}

}  // namespace kiln
