#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "compiler_core/base/math.h"
#include "compiler_core/passes/rewrite.h"
#include "compiler_core/plan/channels_last.h"
#include "compiler_core/plan/rewrites/graph_rewrites.h"

namespace kiln {
namespace {

constexpr int kToLast[] = {0, 2, 3, 1}, kToSecond[] = {0, 3, 1, 2};  // arguments of permute()

bool is_image(const Node& node) {
  return node.shape.size() == 4;
}

// Images of few channels (an image file's three), as a convolution of whole 16 bytes: positions side
// by side count as channels too, as many as windows step by.
struct FewChannels {
  int64_t together = 1, channels = 8;  // positions; channels of each, with zeros
  int64_t height = 0, width = 0;       // with the convolution's own zeros around
  int64_t window_width = 0;            // in positions
};
std::optional<FewChannels> few_channels(const Graph& graph, const Node& node) {
  if (node.op != Op::kConvolution || !is_image(node) || node.dtype != DType::kF32)
    return std::nullopt;
  const Node &x = graph.node(node.operands[0]), &w = graph.node(node.operands[1]);
  const auto& attr = std::get<ConvolutionAttr>(node.attr);
  const auto sizes_of_x = image_sizes(x.shape), sizes_of_result = image_sizes(node.shape);
  if (!is_16_bit_float(x.dtype) || attr.groups != 1 || !sizes_of_x || !sizes_of_result ||
      !is_constant(w.shape))
    return std::nullopt;
  const std::vector<int64_t>&in = *sizes_of_x, &out = *sizes_of_result;
  const std::vector<int64_t> window = constant_sizes(w.shape);
  if (in[1] >= 8 || out[1] < 32 || out[1] % 8 != 0 || in[0] * in[1] * out[2] * out[3] == 0)
    return std::nullopt;
  if (in[2] * in[3] == 1) return std::nullopt;  // an element a channel: a product of few rows
  FewChannels few;
  if (in[1] <= 4 && attr.stride[1] % 2 == 0 && attr.dilation[1] == 1) few = {2, 4};
  few.window_width = round_up(window[3], few.together);
  const int64_t reach_height = (out[2] - 1) * attr.stride[0] + (window[2] - 1) * attr.dilation[0];
  const int64_t reach_width =
      (out[3] - 1) * attr.stride[1] + (few.window_width - 1) * attr.dilation[1];
  few.height = std::max(in[2] + attr.low[0], reach_height + 1);
  few.width = round_up(std::max(in[3] + attr.low[1], reach_width + 1), few.together);
  // The zeros added must not make room for one window more.
  if (few.height - reach_height > attr.stride[0] || few.width - reach_width > attr.stride[1] ||
      in[0] * few.height * few.width * few.channels >= int64_t{1} << 29)
    return std::nullopt;
  return few;
}

// Which convolutions' results lie channels last: those of which another such convolution reads the
// result, or what elementwise arithmetic, pooling and joins make of it. There the turn that it would
// do first is spared. One alone is left as it is, since it would be turned at both ends; but for one
// whose result is read in no other order. So are those of which more readers take the channels
// second: groups of channels that a norm sums up, what is given out.
class ChannelsLastChooser {
 public:
  explicit ChannelsLastChooser(const Graph& graph)
      : graph_(graph), parent_(static_cast<size_t>(graph.size())) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }

  // By node; empty where there is none.
  std::vector<bool> run() {
    std::vector<bool> wanted(static_cast<size_t>(graph_.size()), false);
    bool any = false;
    if (stays_channel_by_channel()) return {};
    for (NodeId id = 0; id < graph_.size(); ++id) join_with_operands(id);
    count_readers();
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (!may_end_channels_last(graph_, id) && !few_channels(graph_, graph_.node(id)) &&
          !lies_channels_last(id))
        continue;
      const Readers& readers = readers_[static_cast<size_t>(class_of(id))];
      if (graph_.node(id).op == Op::kView && !reads_input(id) && readers.convolutions == 0)
        continue;
      if ((readers.last > 0 && readers.last >= readers.second) ||
          find_channels_last_view(graph_, id) != kInvalidNode)
        wanted[static_cast<size_t>(id)] = any = true;
    }
    return any ? wanted : std::vector<bool>();
  }

 private:
  // Members of a class, by the order that they take: last are convolutions, and others. Sums over the
  // image take either.
  struct Readers {
    int last = 0, second = 0, convolutions = 0;
  };
  void count_readers() {
    readers_.resize(parent_.size());
    const auto of = [this](NodeId id) -> Readers& {
      return readers_[static_cast<size_t>(class_of(id))];
    };
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      if (lies_channels_last(id) && reads_input(id)) ++of(id).last;
      if (may_end_channels_last(graph_, id)) {
        ++of(node.operands[0]).last;
        ++of(node.operands[0]).convolutions;
      }
      if (may_end_channels_last(graph_, id) || traits(node.op).kind == OpKind::kReduce) continue;
      if (puts_channels_last(graph_, node) || (!is_image(node) && reads_channels_last(node))) {
        ++of(node.operands[0]).last;
        continue;
      }
      if (reads_channels_last(node) || exchanges_images_and_channels(node)) continue;
      for (const NodeId operand : node.operands)
        if (is_image(graph_.node(operand)) && class_of(operand) != class_of(id))
          ++of(operand).second;
    }
    for (const NodeId id : graph_.outputs()) ++of(id).second;
  }

  // The View reads an image, a part of one or windows of it, with all channels as the last axis.
  bool reads_channels_last(const Node& node) const {
    if (node.op != Op::kView || node.shape.empty() || !is_image(graph_.node(node.operands[0])))
      return false;
    const Shape& from = graph_.node(node.operands[0]).shape;
    return node.shape.back() == from[1] && !from[1].is(1) &&
           std::get<ViewAttr>(node.attr).strides.back() == contiguous_strides(from)[1];
  }

  // The View reads images of a value, a product's rows say, that has channels as neighbours. Views and
  // Pads in between may cut or repeat images.
  bool lies_channels_last(NodeId id) const {
    const Node& node = graph_.node(id);
    if (node.op != Op::kView || !is_image(node) || node.shape[1].is(1)) return false;
    const std::vector<Dim>& steps = std::get<ViewAttr>(node.attr).strides;
    if (steps[2].is(0) || steps[3].is(0)) return false;  // an element a channel
    const Node& source = graph_.node(node.operands[0]);
    if (is_image(source) && source.op != Op::kInput) return false;
    size_t channels = 1;
    for (const Node* at = &node;; at = &graph_.node(at->operands[0])) {
      if (at->op == Op::kInput) return channels + 1 == at->shape.size();
      if (at->op == Op::kPad) continue;
      if (at->op != Op::kView) return false;
      const Node& from = graph_.node(at->operands[0]);
      const Dim& step = std::get<ViewAttr>(at->attr).strides[channels];
      if (from.op != Op::kView && from.op != Op::kPad) return step.is(1);
      // Channels are one axis of the View or Pad below: the axis with the same step and size.
      const std::vector<Dim> strides = contiguous_strides(from.shape);
      for (channels = 0; channels < strides.size(); ++channels)
        if (strides[channels] == step && from.shape[channels] == node.shape[1]) break;
      if (channels == strides.size()) return false;
    }
  }

  // Whether nothing but Views and Pads stands between the node and an input.
  bool reads_input(NodeId id) const {
    while (graph_.node(id).op == Op::kView || graph_.node(id).op == Op::kPad)
      id = graph_.node(id).operands[0];
    return graph_.node(id).op == Op::kInput;
  }

  // The View exchanges images and channels, as a gradient of weights does. It is stored first in either order.
  bool exchanges_images_and_channels(const Node& node) const {
    if (node.op != Op::kView || !is_image(node) || !is_image(graph_.node(node.operands[0])))
      return false;
    const Shape& from = graph_.node(node.operands[0]).shape;
    std::vector<Dim> strides = contiguous_strides(from);
    std::swap(strides[0], strides[1]);
    const auto& view = std::get<ViewAttr>(node.attr);
    return node.shape == Shape{from[1], from[0], from[2], from[3]} && view.strides == strides &&
           view.offset.is(0);
  }

  // Whether images would be turned again and again. Kernels of groups of several channels read and write
  // planes. So do windows of one channel each, where about as many convolutions give images channel by
  // channel (195 of them, say) on their way into another; a stem of few results alone is turned once.
  bool stays_channel_by_channel() const {
    std::vector<bool> leads_on(static_cast<size_t>(graph_.size()), false);  // into a convolution
    int groups = 0, others = 0;
    for (NodeId id = graph_.size(); id-- > 0;) {
      const Node& node = graph_.node(id);
      const bool is_convolution = node.op == Op::kConvolution;
      if (is_convolution) {
        const bool ends_last =
            may_end_channels_last(graph_, id) || few_channels(graph_, node).has_value();
        const bool has_groups = std::get<ConvolutionAttr>(node.attr).groups != 1;
        if (has_groups && !ends_last) return true;
        groups += has_groups;
        others += !ends_last && leads_on[static_cast<size_t>(id)] && has_positions(node.shape);
      }
      if (is_convolution || leads_on[static_cast<size_t>(id)])
        for (const NodeId operand : node.operands) leads_on[static_cast<size_t>(operand)] = true;
    }
    return groups > 0 && 2 * others >= groups;
  }
  static bool has_positions(const Shape& image) {
    return std::any_of(image.begin() + 2, image.end(), [](const Dim& size) { return !size.is(1); });
  }

  NodeId class_of(NodeId id) {
    const auto up = [this](NodeId x) -> NodeId& { return parent_[static_cast<size_t>(x)]; };
    while (up(id) != id) id = up(id) = up(up(id));
    return id;
  }

  // A node that lies as its operands do.
  void join_with_operands(NodeId id) {
    const Node& node = graph_.node(id);
    const bool follows = is_elementwise(node.op) || node.op == Op::kView || node.op == Op::kPad ||
                         node.op == Op::kConcat;
    if (!follows || !is_image(node)) return;
    for (const NodeId operand : node.operands) {
      const Node& x = graph_.node(operand);
      if (!is_image(x) || traits(x.op).kind == OpKind::kSource) continue;
      const bool keeps_channels = node.op != Op::kView || x.shape[1] == node.shape[1];
      if (keeps_channels) parent_[static_cast<size_t>(class_of(operand))] = class_of(id);
    }
  }

  const Graph& graph_;
  std::vector<NodeId> parent_;
  std::vector<Readers> readers_;  // by class
};

class ChannelsLastKeeper {
 public:
  ChannelsLastKeeper(const Graph& graph, std::vector<bool> wanted)
      : rewrite_(graph),
        b_(rewrite_.builder),
        graph_(graph),
        wanted_(std::move(wanted)),
        last_(static_cast<size_t>(graph.size()), kInvalidNode) {
    for (const Node& node : graph.nodes())
      pointwise_.push_back((traits(node.op).kind == OpKind::kSource || is_elementwise(node.op) ||
                            node.op == Op::kView) &&
                           std::ranges::all_of(node.operands, [this](NodeId operand) {
                             return pointwise_[static_cast<size_t>(operand)];
                           }));
  }

  Result<Graph> run() {
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      if (node.op == Op::kInput) continue;
      b_.set_origin(graph_.origin_of(id));
      last_[static_cast<size_t>(id)] = emit_last(id, node);
      if (is_last(id)) continue;
      std::vector<NodeId> operands;
      for (const NodeId operand : node.operands) operands.push_back(second(operand));
      if (rewrite_[id] == kInvalidNode) rewrite_[id] = emit(b_, node, std::move(operands));
    }
    for (const NodeId id : graph_.outputs()) second(id);
    TRY(Graph kept, rewrite_.finish());
    TRY(kept, share_equal_nodes(kept));  // what was read channels last before
    return rewrite_nodes(kept, emit);    // without what nobody reads any more
  }

 private:
  bool is_last(NodeId id) const { return last_[static_cast<size_t>(id)] != kInvalidNode; }
  // The value with its channels last, or second.
  NodeId last(NodeId id) {
    if (is_last(id)) return last_[static_cast<size_t>(id)];
    return is_elementwise(graph_.node(id).op) && pointwise_[static_cast<size_t>(id)]
               ? computed_again(id)
               : b_.permute(rewrite_[id], kToLast);
  }
  // Arithmetic on inputs is done where it is read: of a batch norm's rows, say.
  NodeId computed_again(NodeId root) {
    std::vector<NodeId> stack = {root}, region;
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (again_.contains(id) || std::ranges::find(region, id) != region.end()) continue;
      region.push_back(id);
      for (const NodeId operand : graph_.node(id).operands)
        if (is_elementwise(graph_.node(operand).op)) stack.push_back(operand);
    }
    std::ranges::sort(region);
    for (const NodeId id : region) {
      Node turned = graph_.node(id);
      for (NodeId& operand : turned.operands)
        operand = is_elementwise(graph_.node(operand).op) ? again_.at(operand)
                                                          : b_.permute(rewrite_[operand], kToLast);
      turned.shape = turned_shape(turned.shape);
      again_[id] = b_.add(std::move(turned));
    }
    return again_.at(root);
  }
  NodeId second(NodeId id) {
    if (rewrite_[id] == kInvalidNode) rewrite_[id] = b_.permute(last(id), kToSecond);
    return rewrite_[id];
  }

  // The node with its channels last, where that is how it is to lie; kInvalidNode otherwise.
  // rewrite_[id] then stands for it where it was emitted on the way.
  NodeId emit_last(NodeId id, const Node& node) {
    if (wanted_[static_cast<size_t>(id)] && node.op == Op::kView) {
      rewrite_[id] = emit(b_, node, {second(node.operands[0])});
      return b_.permute(rewrite_[id], kToLast);
    }
    if (wanted_[static_cast<size_t>(id)]) return convolution(id, node);
    const bool follows = std::any_of(node.operands.begin(), node.operands.end(),
                                     [this](NodeId operand) { return is_last(operand); });
    if (!follows) return kInvalidNode;
    if (traits(node.op).kind == OpKind::kReduce) {
      rewrite_[id] = reduced(node);
      return kInvalidNode;
    }
    if (!is_image(node)) return kInvalidNode;
    if (is_elementwise(node.op)) {
      Node turned = node;
      for (NodeId& operand : turned.operands) operand = last(operand);
      turned.shape = turned_shape(node.shape);
      return b_.add(std::move(turned));
    }
    if (node.op == Op::kView) return viewed(id, node);
    if (node.op == Op::kPad) {
      const auto& pad = std::get<PadAttr>(node.attr);
      return b_.pad(last(node.operands[0]), turned_shape(pad.low), turned_shape(pad.high),
                    pad.value);
    }
    if (node.op == Op::kConcat) {
      std::vector<NodeId> parts;
      for (const NodeId operand : node.operands) parts.push_back(last(operand));
      return b_.concat(parts, channels_last_axis(std::get<AxisAttr>(node.attr).axis));
    }
    return kInvalidNode;
  }

  static std::vector<Dim> turned_shape(const std::vector<Dim>& sizes) {
    return {sizes[0], sizes[2], sizes[3], sizes[1]};
  }

  // A part of the image, or neighbours of its elements: what keeps all channels side by side.
  NodeId viewed(NodeId id, const Node& node) {
    const NodeId x = node.operands[0];
    const auto& attr = std::get<ViewAttr>(node.attr);
    rewrite_[id] = b_.view(second(x), node.shape, attr.strides, attr.offset);
    if (graph_.node(x).shape.size() != 4 || graph_.node(x).shape[1] != node.shape[1])
      return kInvalidNode;
    const NodeId whole = last(x), turned = b_.permute(rewrite_[id], kToLast);
    if (turned == whole) return turned;
    const Node &from = b_.node(whole), &made = b_.node(turned);
    const NodeId stored = from.op == Op::kView ? from.operands[0] : whole;
    if (made.op != Op::kView || made.operands[0] != stored) return kInvalidNode;
    return std::get<ViewAttr>(made.attr).strides.back().is(1) ? turned : kInvalidNode;
  }

  // Over the same axes, where they are neighbours then.
  NodeId reduced(const Node& node) {
    const NodeId x = node.operands[0];
    std::vector<int> axes = std::get<ReduceAttr>(node.attr).axes, left, order;
    std::vector<bool> is_reduced(4, false);
    for (int& axis : axes) {
      axis = channels_last_axis(axis);
      is_reduced[static_cast<size_t>(axis)] = true;
    }
    std::ranges::sort(axes);
    if (axes.back() - axes.front() + 1 != static_cast<int>(axes.size()))
      return b_.reduce(node.op, second(x), std::get<ReduceAttr>(node.attr).axes);
    for (int axis = 0; axis < 4; ++axis)
      if (!is_reduced[static_cast<size_t>(axis)]) left.push_back(axis);
    for (int axis = 0; axis < 4; ++axis) {
      const auto at = std::ranges::find(left, channels_last_axis(axis));
      if (at != left.end()) order.push_back(static_cast<int>(at - left.begin()));
    }
    return b_.permute(b_.reduce(node.op, last(x), std::move(axes)), order);
  }

  NodeId convolution(NodeId id, const Node& node) {
    const NodeId x = node.operands[0], w = second(node.operands[1]);
    if (const auto few = few_channels(graph_, node)) return widened(node, *few);
    if (is_single_element(node)) {
      const Shape& from = graph_.node(x).shape;
      const Dim positions = from[2] * from[3], channels = from[1], results = node.shape[1];
      const NodeId weight = b_.permute(b_.reshape(w, {results, channels}), {1, 0});
      const NodeId rows = b_.reshape(last(x), {from[0] * positions, channels});
      if (is_last(x) || b_.node(rows).op != Op::kView ||
          b_.node(b_.node(rows).operands[0]).op != Op::kView)
        return b_.reshape(b_.matmul(rows, weight), turned_shape(node.shape));
      // Channel by channel as it is, images are columns of a product each: where those begin at
      // multiples of 16 bytes.
      if (positions.constant() % 8 == 0) {
        const NodeId columns =
            b_.permute(b_.reshape(second(x), {from[0], channels, positions}), {0, 2, 1});
        const NodeId each =
            b_.broadcast(b_.reshape(weight, {1, channels, results}), {from[0], channels, results});
        return b_.reshape(b_.matmul(columns, each), turned_shape(node.shape));
      }
    }
    Node plain = node;
    plain.operands = {second(x), w};
    rewrite_[id] = b_.add(std::move(plain));
    return b_.permute(rewrite_[id], kToLast);
  }

  NodeId widened(const Node& node, const FewChannels& few) {
    const auto& attr = std::get<ConvolutionAttr>(node.attr);
    const auto side_by_side = [&](NodeId x, int64_t above, int64_t before, int64_t height,
                                  int64_t width) {
      const Shape from = b_.shape(x);
      const ConstantAttr zero = constant_bits(b_.dtype(x), 0);
      x = b_.pad(x, {0, above, before, 0},
                 {0, Dim(height - above) - from[1], Dim(width - before) - from[2],
                  Dim(few.channels) - from[3]},
                 zero);
      x = b_.reshape(x, {from[0], height, width / few.together, few.together * few.channels});
      return b_.permute(x, kToSecond);
    };
    const NodeId w = b_.permute(second(node.operands[1]), kToLast);
    const NodeId images =
        side_by_side(last(node.operands[0]), attr.low[0], attr.low[1], few.height, few.width);
    const NodeId weights = side_by_side(w, 0, 0, b_.shape(w)[1].constant(), few.window_width);
    const ConvolutionAttr wide{{attr.stride[0], attr.stride[1] / few.together},
                               {attr.dilation[0], attr.dilation[1]},
                               {0, 0},
                               {0, 0},
                               1};
    return b_.permute(b_.convolution(images, weights, wide), kToLast);
  }

  bool is_single_element(const Node& node) const {
    const auto& attr = std::get<ConvolutionAttr>(node.attr);
    const Shape& w = graph_.node(node.operands[1]).shape;
    const auto all = [](const std::vector<int64_t>& values, int64_t wanted) {
      return std::ranges::count(values, wanted) == static_cast<int64_t>(values.size());
    };
    return attr.groups == 1 && all(attr.stride, 1) && all(attr.low, 0) && all(attr.high, 0) &&
           w[2].is(1) && w[3].is(1);
  }

  Rewrite rewrite_;
  GraphBuilder& b_;
  const Graph& graph_;
  const std::vector<bool> wanted_;
  std::vector<bool> pointwise_;     // by node: arithmetic on inputs
  std::vector<NodeId> last_;        // by node: with its channels last, where it is computed so
  std::map<NodeId, NodeId> again_;  // pointwise nodes that are computed a second time, so
};

}  // namespace

Result<Graph> keep_channels_last(const Graph& graph) {
  std::vector<bool> wanted = ChannelsLastChooser(graph).run();
  if (wanted.empty()) return graph;
  return ChannelsLastKeeper(graph, std::move(wanted)).run();
}

}  // namespace kiln
