#include "compiler_core/plan/rewrites/kernel_rewrites.h"

#include <algorithm>
#include <optional>

#include "compiler_core/passes/rewrite.h"

namespace kiln {
namespace {

// How the axes of the iteration space fall into runs, each of which becomes one axis.
class AxisMerger {
 public:
  explicit AxisMerger(const Graph& graph) : graph_(graph), live_(live_nodes(graph)) {}

  Result<Graph> run() {
    if (!find_space() || !every_node_fits()) return graph_;
    find_runs();
    return rebuild();
  }

 private:
  enum class Level { kFull, kReduced, kLeaf };

  size_t rank() const { return space_.size(); }
  bool live(NodeId id) const { return live_[static_cast<size_t>(id)]; }
  // A scalar outside the iteration space.
  bool is_seed(NodeId id) const { return seeds_[static_cast<size_t>(id)]; }

  // The shape all arithmetic shares, and the axes that have to stay as they are: those along which
  // something is joined or contracted.
  bool find_space() {
    if (graph_.outputs().empty()) return false;
    space_ = graph_.node(graph_.outputs()[0]).shape;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      if (!live(id)) continue;
      if (node.op == Op::kGather || stands_alone(node.op)) return false;
      if (node.op == Op::kConvolution) return false;  // its attributes name its axes
      if (node.op == Op::kMatmul) space_ = node.shape;
      if (traits(node.op).kind != OpKind::kReduce) continue;
      space_ = graph_.node(node.operands[0]).shape;
      reduced_axes_ = std::get<ReduceAttr>(node.attr).axes;
    }
    seeds_.assign(static_cast<size_t>(graph_.size()), false);
    for (const Node& node : graph_.nodes())
      if (node.op == Op::kPhilox) seeds_[static_cast<size_t>(node.operands[0])] = true;
    pinned_.assign(rank(), false);
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (live(id) && !pin(graph_.node(id))) return false;
    reduced_.assign(rank(), false);
    for (int axis : reduced_axes_) reduced_[static_cast<size_t>(axis)] = true;
    return true;
  }

  bool pin(const Node& node) {
    if (node.op == Op::kConcat || node.op == Op::kPad || node.op == Op::kMatmul)
      if (node.shape.size() != rank()) return false;
    if (node.op == Op::kConcat)
      pinned_[static_cast<size_t>(std::get<AxisAttr>(node.attr).axis)] = true;
    if (node.op == Op::kMatmul) pinned_[rank() - 1] = pinned_[rank() - 2] = true;
    if (node.op == Op::kPad) {
      const auto& pad = std::get<PadAttr>(node.attr);
      for (size_t i = 0; i < rank(); ++i)
        if (!pad.low[i].is(0) || !pad.high[i].is(0)) pinned_[i] = true;
    }
    return true;
  }

  std::optional<Level> level_of(const Shape& shape) const {
    if (shape.size() == rank()) {
      for (size_t i = 0; i < rank(); ++i)
        if (!pinned_[i] && shape[i] != space_[i]) return std::nullopt;
      return Level::kFull;
    }
    if (!reduced_axes_.empty() && shape == reduced_shape()) return Level::kReduced;
    return std::nullopt;
  }

  Shape reduced_shape() const {
    Shape shape;
    for (size_t i = 0; i < rank(); ++i)
      if (!reduced_[i]) shape.push_back(space_[i]);
    return shape;
  }

  bool every_node_fits() {
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      if (!live(id)) continue;
      if (is_leaf(node.op) || is_seed(id)) continue;  // fits where it is read
      if (!level_of(node.shape)) return false;
      if (node.op == Op::kView) {
        if (!is_leaf(graph_.node(node.operands[0]).op) && reduced_axes_.empty()) return false;
        continue;
      }
      if (node.op == Op::kPhilox) continue;
      for (NodeId operand : node.operands)
        if (!level_of(graph_.node(operand).shape)) return false;
      if (traits(node.op).kind == OpKind::kReduce &&
          (graph_.node(node.operands[0]).shape != space_ ||
           std::get<ReduceAttr>(node.attr).axes != reduced_axes_))
        return false;
    }
    for (NodeId id : graph_.outputs())
      if (!level_of(graph_.node(id).shape)) return false;
    return true;
  }

  // Axes of the iteration space that `level` has, outermost first.
  std::vector<size_t> axes_of(Level level) const {
    std::vector<size_t> axes;
    for (size_t i = 0; i < rank(); ++i)
      if (level == Level::kFull || !reduced_[i]) axes.push_back(i);
    return axes;
  }

  bool droppable(size_t axis) const { return !pinned_[axis] && space_[axis].is(1); }

  // runs_ lists, for each axis of the result, the old axes [first, last] it is made of; axes of
  // size 1 are in none.
  void find_runs() {
    for (size_t i = 0; i < rank(); ++i) {
      if (droppable(i)) continue;
      if (!runs_.empty() && may_join(runs_.back().second, i))
        runs_.back().second = i;
      else
        runs_.emplace_back(i, i);
    }
  }

  bool may_join(size_t outer, size_t inner) const {
    if (pinned_[outer] || pinned_[inner] || reduced_[outer] != reduced_[inner]) return false;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      if (!live(id) || node.op != Op::kView || is_seed(id)) continue;
      const auto& view = std::get<ViewAttr>(node.attr);
      const std::vector<size_t> axes = axes_of(*level_of(node.shape));
      const auto at = [&](size_t axis) -> std::optional<size_t> {
        const auto found = std::find(axes.begin(), axes.end(), axis);
        if (found == axes.end()) return std::nullopt;
        return static_cast<size_t>(found - axes.begin());
      };
      const auto o = at(outer), i = at(inner);
      if (o && i && view.strides[*o] != view.strides[*i] * node.shape[*i]) return false;
    }
    return true;
  }

  // The values of `dims` (sizes or strides of a node of `level`) for the merged axes.
  template <class Combine>
  std::vector<Dim> merged(const std::vector<Dim>& dims, Level level, Combine combine) const {
    const std::vector<size_t> axes = axes_of(level);
    std::vector<Dim> result;
    for (const auto& [first, last] : runs_) {
      if (level == Level::kReduced && reduced_[first]) continue;
      std::optional<Dim> value;
      for (size_t i = 0; i < axes.size(); ++i)
        if (axes[i] >= first && axes[i] <= last && !droppable(axes[i]))
          value = value ? combine(*value, dims[i]) : dims[i];
      result.push_back(*value);
    }
    return result;
  }
  Shape merged_shape(const Shape& shape) const {
    return merged(shape, *level_of(shape), [](const Dim& a, const Dim& b) { return a * b; });
  }
  // A run is traversed with the stride of its innermost axis.
  std::vector<Dim> merged_strides(const Node& view) const {
    return merged(std::get<ViewAttr>(view.attr).strides, *level_of(view.shape),
                  [](const Dim&, const Dim& inner) { return inner; });
  }

  // The shape each input is declared in: that of a node that reads all of it in order.
  std::vector<Shape> input_shapes() const {
    std::vector<std::optional<Shape>> dense(static_cast<size_t>(graph_.size()));
    const auto propose = [&](NodeId input, Shape shape) {
      auto& slot = dense[static_cast<size_t>(input)];
      if (!slot || shape < *slot) slot = std::move(shape);
    };
    std::vector<bool> direct(static_cast<size_t>(graph_.size()), false);
    const auto read_directly = [&](NodeId id) {
      if (graph_.node(id).op != Op::kInput) return;
      dense[static_cast<size_t>(id)] = merged_shape(graph_.node(id).shape);
      direct[static_cast<size_t>(id)] = true;
    };
    for (NodeId id : graph_.outputs()) read_directly(id);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      if (!live(id)) continue;
      if (node.op == Op::kPhilox && graph_.node(node.operands[0]).op == Op::kInput) {
        dense[static_cast<size_t>(node.operands[0])] = Shape{};
        direct[static_cast<size_t>(node.operands[0])] = true;
      } else if (node.op != Op::kView && node.op != Op::kPhilox) {
        for (NodeId operand : node.operands) read_directly(operand);
      }
    }
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      if (!live(id) || node.op != Op::kView || direct[static_cast<size_t>(node.operands[0])] ||
          is_seed(id))
        continue;
      const Shape shape = merged_shape(node.shape);
      if (numel(shape) == numel(graph_.node(node.operands[0]).shape) &&
          std::get<ViewAttr>(node.attr).offset.is(0) &&
          merged_strides(node) == contiguous_strides(shape))
        propose(node.operands[0], shape);
    }
    std::vector<Shape> shapes;
    for (NodeId id : graph_.inputs()) {
      const auto& slot = dense[static_cast<size_t>(id)];
      shapes.push_back(slot ? *slot : Shape{numel(graph_.node(id).shape)});
    }
    return shapes;
  }

  Result<Graph> rebuild() {
    GraphBuilder builder;
    builder.carry_origins(graph_);
    for (const Symbol& symbol : graph_.symbols()) builder.symbol(symbol.range, symbol.hint);
    std::vector<NodeId> map(static_cast<size_t>(graph_.size()), kInvalidNode);
    const std::vector<Shape> shapes = input_shapes();
    for (size_t i = 0; i < shapes.size(); ++i) {
      const NodeId old = graph_.inputs()[i];
      map[static_cast<size_t>(old)] = builder.input(graph_.node(old).dtype, shapes[i]);
    }
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      if (!live(id) || node.op == Op::kInput) continue;
      std::vector<NodeId> operands;
      for (NodeId operand : node.operands) operands.push_back(map[static_cast<size_t>(operand)]);
      builder.set_origin(graph_.origin_of(id));
      map[static_cast<size_t>(id)] = is_seed(id) ? emit(builder, node, std::move(operands))
                                                 : emit_merged(builder, node, std::move(operands));
    }
    std::vector<NodeId> outputs;
    for (NodeId id : graph_.outputs()) outputs.push_back(map[static_cast<size_t>(id)]);
    return builder.finish(std::move(outputs));
  }

  NodeId emit_merged(GraphBuilder& builder, const Node& node, std::vector<NodeId> operands) const {
    if (is_leaf(node.op)) return emit(builder, node, std::move(operands));
    Node merged_node = node;
    merged_node.shape = merged_shape(node.shape);
    if (auto* view = std::get_if<ViewAttr>(&merged_node.attr)) {
      view->strides = merged_strides(node);
    } else if (auto* reduce = std::get_if<ReduceAttr>(&merged_node.attr)) {
      reduce->axes = merged_reduced_axes();
    } else if (auto* axis = std::get_if<AxisAttr>(&merged_node.attr)) {
      axis->axis = merged_axis(axis->axis);
    } else if (auto* pad = std::get_if<PadAttr>(&merged_node.attr)) {
      const auto inner = [](const Dim&, const Dim& b) { return b; };  // all 0 in a longer run
      pad->low = merged(pad->low, Level::kFull, inner);
      pad->high = merged(pad->high, Level::kFull, inner);
    }
    return emit(builder, merged_node, std::move(operands));
  }

  int merged_axis(int axis) const {
    for (size_t i = 0; i < runs_.size(); ++i)
      if (runs_[i].first == static_cast<size_t>(axis)) return static_cast<int>(i);
    return axis;
  }
  std::vector<int> merged_reduced_axes() const {
    std::vector<int> axes;
    for (size_t i = 0; i < runs_.size(); ++i)
      if (reduced_[runs_[i].first]) axes.push_back(static_cast<int>(i));
    return axes;
  }

  const Graph& graph_;
  const std::vector<bool> live_;
  std::vector<bool> seeds_;  // by node: a Philox reads it
  Shape space_;
  std::vector<int> reduced_axes_;
  std::vector<bool> pinned_, reduced_;
  std::vector<std::pair<size_t, size_t>> runs_;
};

}  // namespace

Result<Graph> merge_axes(const Graph& graph) {
  if (!graph.outputs().empty() && stands_alone(graph.node(graph.outputs()[0]).op))
    return merge_single_op_axes(graph);
  return AxisMerger(graph).run();
}

}  // namespace kiln
