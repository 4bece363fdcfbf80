#include "compiler_core/plan/fusion/fuse.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>

#include "compiler_core/ir/builder.h"
#include "compiler_core/passes/rewrite.h"
#include "compiler_core/plan/axis_cuts.h"
#include "compiler_core/plan/fusion/materialised_values.h"
#include "compiler_core/plan/rms_norm.h"
#include "compiler_core/plan/sizes.h"

namespace kiln {
namespace {

class Cutter {
 public:
  Cutter(const Graph& graph, const MaterialisedValues& values, const std::vector<NodeId>& outputs)
      : graph_(graph), values_(values), outputs_(outputs) {}

  Result<KernelGraph> run() {
    collect();
    choose_space();
    builder_.carry_origins(graph_);
    for (const Symbol& symbol : graph_.symbols()) builder_.symbol(symbol.range, symbol.hint);
    for (NodeId id : members_) {
      builder_.set_origin(graph_.origin_of(id));
      map_[id] = is_input(id) ? read(id) : compute(graph_.node(id));
    }
    std::vector<NodeId> outputs;
    for (NodeId id : outputs_) outputs.push_back(in_space(id, map_.at(id)));
    TRY(Graph graph, builder_.finish(std::move(outputs)));
    std::erase_if(members_, [this](NodeId id) { return is_input(id); });
    return KernelGraph{std::move(graph), std::move(inputs_), std::move(members_)};
  }

 private:
  bool is_input(NodeId id) const {
    if (graph_.node(id).op == Op::kInput) return true;
    return values_[id] && std::find(outputs_.begin(), outputs_.end(), id) == outputs_.end();
  }

  // As they lie: no View can stand between.
  bool reads_buffers() const { return stands_alone(graph_.node(outputs_[0]).op); }

  // members_: everything the outputs need, down to the kernel's inputs, operands first. Ids are a
  // topological order, so sorting is enough.
  void collect() {
    std::vector<NodeId> stack(outputs_.begin(), outputs_.end());
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (!map_.try_emplace(id, kInvalidNode).second) continue;
      members_.push_back(id);
      if (is_input(id)) continue;
      const auto& operands = graph_.node(id).operands;
      stack.insert(stack.end(), operands.begin(), operands.end());
    }
    std::sort(members_.begin(), members_.end());
  }

  // Chooses, among the shapes in which reductions write their common space, the one with most axes:
  // splitting an axis is always possible, joining two is not.
  void choose_space() {
    for (NodeId id : members_)
      if (!is_input(id) && graph_.node(id).op == Op::kMatmul) products_.push_back(id);
    if (!products_.empty()) return choose_space_of_norm();
    for (NodeId id : members_) {
      const Node& node = graph_.node(id);
      if (is_input(id) || traits(node.op).kind != OpKind::kReduce) continue;
      const Shape& shape = graph_.node(node.operands[0]).shape;
      const auto& axes = std::get<ReduceAttr>(node.attr).axes;
      Shape space;
      std::vector<int> reduced;
      for (size_t i = 0; i < shape.size(); ++i) {
        if (shape[i].is(1)) continue;
        if (std::binary_search(axes.begin(), axes.end(), static_cast<int>(i)))
          reduced.push_back(static_cast<int>(space.size()));
        space.push_back(shape[i]);
      }
      if (!reduced_.empty() && space.size() <= space_.size()) continue;
      space_ = std::move(space);
      reduced_ = std::move(reduced);
      sizes_ = reduction_sizes(graph_, node);
    }
    split_space();
    reduced_space_.clear();
    for (size_t i = 0; i < space_.size(); ++i)
      if (!std::binary_search(reduced_.begin(), reduced_.end(), static_cast<int>(i)))
        reduced_space_.push_back(space_[i]);
  }

  // Of products whose rows a norm scales: that of those rows.
  void choose_space_of_norm() {
    const NodeId operand = graph_.node(products_[0]).operands[0];
    if (is_input(operand)) return;
    const auto norm = find_rms_norm(graph_, operand);
    if (!norm) return;
    space_ = graph_.node(operand).shape;
    reduced_ = {1};
    reduced_space_ = {space_[0]};
    sizes_ = reduction_sizes(graph_, graph_.node(norm->squares));
  }

  // Splits axes of the space until it has the axes of every value that is walked in its order. A View
  // of a View then reads its buffer with a stride for each axis. The space stays as it is where two
  // values cut it at places that do not divide each other.
  void split_space() {
    if (space_.empty() || !is_constant(space_) || numel(space_).is(0)) return;
    AxisCuts cuts;
    for (const Shape& shape : walked_shapes()) cuts.merge(axis_cuts(shape));
    const std::optional<Shape> split = sizes_between(cuts);
    if (!split) return;
    std::vector<int> reduced;
    size_t axis = 0;  // of the space, of which `inside` is what the split has found so far
    Dim inside = 1;
    for (size_t i = 0; i < split->size(); ++i) {
      if (std::binary_search(reduced_.begin(), reduced_.end(), static_cast<int>(axis)))
        reduced.push_back(static_cast<int>(i));
      inside = inside * (*split)[i];
      if (inside == space_[axis]) ++axis, inside = 1;
    }
    space_ = *split;
    reduced_ = std::move(reduced);
  }
  // The shapes of values that are walked in the space's order and have as many elements.
  std::vector<Shape> walked_shapes() const {
    std::vector<NodeId> stack(outputs_.begin(), outputs_.end());
    for (NodeId id : members_)
      if (!is_input(id) && traits(graph_.node(id).op).kind == OpKind::kReduce)
        stack.push_back(graph_.node(id).operands[0]);
    std::vector<Shape> shapes = {space_};
    std::set<NodeId> met;
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      const Node& node = graph_.node(id);
      if (numel(node.shape) != numel(space_) || !met.insert(id).second) continue;
      shapes.push_back(node.shape);
      const bool goes_on =
          is_elementwise(node.op) || (node.op == Op::kView && is_reshape(graph_, node));
      if (!is_input(id) && goes_on)
        stack.insert(stack.end(), node.operands.begin(), node.operands.end());
    }
    return shapes;
  }

  NodeId read(NodeId id) {
    inputs_.push_back(id);
    const Node& node = graph_.node(id);
    const auto rearranged = values_.product_view.find(id);
    if (rearranged == values_.product_view.end()) return builder_.input(node.dtype, node.shape);
    const Node& view = graph_.node(rearranged->second);
    if (reads_buffers() && is_reshape(graph_, view)) return builder_.input(node.dtype, node.shape);
    const auto& attr = std::get<ViewAttr>(view.attr);
    const NodeId buffer = builder_.input(node.dtype, graph_.node(view.operands[0]).shape);
    return builder_.view(buffer, view.shape, attr.strides, attr.offset);
  }

  NodeId compute(const Node& node) {
    const std::optional<Shape> walk = shape_in_space(node);
    std::vector<NodeId> operands;
    for (NodeId operand : node.operands)
      operands.push_back(
          builder_.reshape(map_.at(operand), walk ? *walk : graph_.node(operand).shape));
    if (walk) return builder_.add({node.op, node.dtype, *walk, std::move(operands), node.attr});
    const bool reduces = traits(node.op).kind == OpKind::kReduce;
    if (!reduces || reduction_sizes(graph_, node) != sizes_)
      return emit(builder_, node, std::move(operands));
    const NodeId result = builder_.reduce(node.op, builder_.reshape(operands[0], space_), reduced_);
    return builder_.reshape(result, node.shape);
  }

  // The shape in which a kernel with reductions computes an elementwise node, whatever its own is.
  std::optional<Shape> shape_in_space(const Node& node) const {
    if (reduced_.empty() || !is_elementwise(node.op)) return std::nullopt;
    if (numel(node.shape) == numel(space_)) return space_;
    if (numel(node.shape) == numel(reduced_space_)) return reduced_space_;
    return std::nullopt;
  }

  NodeId in_space(NodeId id, NodeId value) {
    const Node& node = graph_.node(id);
    const auto rearranged = values_.product_view.find(id);
    if (rearranged != values_.product_view.end())
      return undone(value, graph_.node(rearranged->second));
    if (!reduced_.empty() && products_.empty()) {
      if (numel(node.shape) == numel(space_)) return builder_.reshape(value, space_);
      if (numel(node.shape) == numel(reduced_space_))
        return builder_.reshape(value, reduced_space_);
      return value;
    }
    if (const auto shape = shape_of_joined(node)) return builder_.reshape(value, *shape);
    const Shape& first = graph_.node(outputs_[0]).shape;
    return numel(node.shape) == numel(first) ? builder_.reshape(value, first) : value;
  }

  // Of products of one first operand, the shape of those that have as many results, whatever shape those
  // have in the end.
  std::optional<Shape> shape_of_joined(const Node& result) const {
    if (products_.size() < 2) return std::nullopt;
    const auto first_operand = [this](NodeId id) { return graph_.node(id).operands[0]; };
    std::optional<Shape> found;
    for (NodeId id : products_) {
      if (first_operand(id) != first_operand(products_[0])) return std::nullopt;
      if (numel(graph_.node(id).shape) == numel(result.shape)) found = graph_.node(id).shape;
    }
    return found;
  }

  // The value in the order of the operand of `view`: its axes in that order, those of size 1
  // anywhere.
  NodeId undone(NodeId value, const Node& view) {
    std::vector<int> order = *walk_order(graph_, view);
    for (int axis = 0; axis < static_cast<int>(view.shape.size()); ++axis)
      if (view.shape[static_cast<size_t>(axis)].is(1)) order.push_back(axis);
    return builder_.reshape(builder_.permute(value, order), graph_.node(view.operands[0]).shape);
  }

  const Graph& graph_;
  const MaterialisedValues& values_;
  const std::vector<NodeId>& outputs_;
  std::vector<NodeId> members_;
  std::vector<NodeId> inputs_;
  std::unordered_map<NodeId, NodeId> map_;
  Shape space_, reduced_space_;
  std::vector<NodeId> products_;  // the kernel's matmuls
  std::vector<int> reduced_;      // axes of space_; empty without reductions
  ReductionSizes sizes_;
  GraphBuilder builder_;
};

}  // namespace

Result<KernelGraph> extract_kernel(const Graph& graph, const MaterialisedValues& values,
                                   const std::vector<NodeId>& outputs) {
  return Cutter(graph, values, outputs).run();
}

}  // namespace kiln
