#include "compiler_core/passes/colours.h"

#include <algorithm>

#include "compiler_core/ir/custom_call.h"
#include "compiler_core/passes/rewrite.h"

namespace kiln {
namespace {

// More inputs than this are indistinguishable only in sums of very many equal terms. There, equal
// graphs may get different digests, which costs a cache miss and nothing else.
constexpr int kMaxSingledOut = 64;
constexpr int kMaxSweeps = 8;

Colour mix(Colour a, Colour b) {
  Colour x = (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2))) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 30)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

Colour text_colour(std::string_view text) {
  Colour hash = 0xcbf29ce484222325u;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

class Refiner {
 public:
  explicit Refiner(const Graph& graph)
      : graph_(graph), live_(live_nodes(graph)), symbols_used_(uses_symbols()) {
    op_colours_.reserve(kOpCount);
    for (int op = 0; op < kOpCount; ++op)
      op_colours_.push_back(text_colour(to_string(static_cast<Op>(op))));
    colours_.nodes.assign(static_cast<size_t>(graph.size()), 0);
    for (const Symbol& symbol : graph.symbols())
      colours_.symbols.push_back(
          mix(static_cast<Colour>(symbol.range.min), static_cast<Colour>(symbol.range.max)));
    start_locals();
  }

  Colours run() {
    colours_.nodes = local_;
    refine();
    for (int i = 0; i < kMaxSingledOut; ++i) {
      const NodeId tied = first_tied_input();
      if (tied == kInvalidNode) break;
      node(tied) = mix(node(tied), 0x51e6);
      refine();
    }
    return std::move(colours_);
  }

 private:
  Colour& node(NodeId id) { return colours_.nodes[static_cast<size_t>(id)]; }
  bool live(NodeId id) const { return live_[static_cast<size_t>(id)]; }

  // A symbol that no live node mentions must not be seen: canonical form drops it.
  bool uses_symbols() const {
    const auto open = [](const Dim& dim) { return !dim.is_constant(); };
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Shape& shape = graph_.node(id).shape;
      if (live(id) && std::any_of(shape.begin(), shape.end(), open)) return true;
    }
    return false;
  }

  void start_locals() {
    local_.assign(static_cast<size_t>(graph_.size()), 0);
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (live(id)) local_[static_cast<size_t>(id)] = local_colour(graph_.node(id));
  }

  Colour local_colour(const Node& node) const {
    Colour colour = mix(op_colours_[static_cast<size_t>(node.op)], static_cast<Colour>(node.dtype));
    colour = dims_colour(colour, node.shape);
    if (const auto* constant = std::get_if<ConstantAttr>(&node.attr))
      return mix(colour, constant->bits);
    if (const auto* view = std::get_if<ViewAttr>(&node.attr))
      return dim_colour(dims_colour(colour, view->strides), view->offset);
    if (const auto* pad = std::get_if<PadAttr>(&node.attr))
      return mix(dims_colour(dims_colour(colour, pad->low), pad->high), pad->value.bits);
    if (const auto* axis = std::get_if<AxisAttr>(&node.attr))
      return mix(colour, static_cast<Colour>(axis->axis));
    if (const auto* reduce = std::get_if<ReduceAttr>(&node.attr))
      for (int axis : reduce->axes) colour = mix(colour, static_cast<Colour>(axis));
    if (const auto* convolution = std::get_if<ConvolutionAttr>(&node.attr)) {
      colour = mix(colour, static_cast<Colour>(convolution->groups));
      for (const auto* list :
           {&convolution->stride, &convolution->dilation, &convolution->low, &convolution->high})
        for (const int64_t value : *list) colour = mix(colour, static_cast<Colour>(value));
    }
    if (const auto* scatter = std::get_if<ScatterAttr>(&node.attr))
      return mix(colour, static_cast<Colour>(scatter->combine));
    if (const auto* sort = std::get_if<SortAttr>(&node.attr))
      return mix(colour, static_cast<Colour>(sort->descending));
    if (const auto* philox = std::get_if<PhiloxAttr>(&node.attr))
      return mix(colour, static_cast<Colour>(philox->stream));
    if (const auto* custom = std::get_if<CustomAttr>(&node.attr))
      for (const char c : print_custom_call(*custom->call))
        colour = mix(colour, static_cast<Colour>(c));
    return colour;
  }

  Colour dims_colour(Colour colour, const std::vector<Dim>& dims) const {
    for (const Dim& dim : dims) colour = dim_colour(colour, dim);
    return mix(colour, dims.size());
  }

  // A polynomial over symbols gets the colour of its value at a point that the symbols' colours
  // choose: independent of their numbering, and different polynomials rarely meet.
  Colour dim_colour(Colour colour, const Dim& dim) const {
    if (dim.is_constant()) return mix(colour, static_cast<Colour>(dim.constant()));
    std::vector<int64_t> point;
    for (Colour symbol : colours_.symbols)
      point.push_back(static_cast<int64_t>(symbol & 0xffff) + 1);
    const auto value = dim.evaluate(point);
    return mix(mix(colour, 0xd1), value ? static_cast<Colour>(*value) : 0);
  }

  void refine() {
    size_t classes = 0;
    for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
      sweep_up();
      sweep_down();
      if (symbols_used_) sweep_symbols();
      const size_t now = count_classes();
      if (now == classes || all_inputs_differ()) break;
      classes = now;
    }
    sweep_up();
  }

  // A node's colour and those of its operands. An input keeps its own.
  void sweep_up() {
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (!live(id)) continue;
      const Node& node = graph_.node(id);
      if (node.operands.empty()) continue;
      Colour colour = mix(this->node(id), local_[static_cast<size_t>(id)]);
      if (traits(node.op).commutative) {
        const auto [low, high] =
            std::minmax(this->node(node.operands[0]), this->node(node.operands[1]));
        colour = mix(mix(colour, low), high);
      } else {
        for (NodeId operand : node.operands) colour = mix(colour, this->node(operand));
      }
      this->node(id) = colour;
    }
  }

  // A node's colour and those of its users, with the place it has in each. A sum is indifferent to
  // the order of users, and mixing first keeps its terms apart.
  void sweep_down() {
    std::vector<Colour> uses(static_cast<size_t>(graph_.size()), 0);
    Colour place = 0;
    for (NodeId id : graph_.outputs()) uses[static_cast<size_t>(id)] += mix(0x0u, ++place);
    for (NodeId id = graph_.size(); id-- > 0;) {
      if (!live(id)) continue;
      const Node& node = graph_.node(id);
      this->node(id) = mix(this->node(id), uses[static_cast<size_t>(id)]);
      Colour position = 0;
      for (NodeId operand : node.operands) {
        if (!traits(node.op).commutative) ++position;
        uses[static_cast<size_t>(operand)] += mix(this->node(id), position);
      }
    }
  }

  // A symbol's colour and those of the nodes whose sizes mention it; then the nodes' own again.
  void sweep_symbols() {
    std::vector<Colour> uses(colours_.symbols.size(), 0);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (!live(id)) continue;
      Colour position = 0;
      for (const Dim& dim : graph_.node(id).shape) {
        ++position;
        for (SymbolId symbol : dim.symbols())
          uses[static_cast<size_t>(symbol)] += mix(node(id), position);
      }
    }
    for (size_t i = 0; i < uses.size(); ++i)
      colours_.symbols[i] = mix(colours_.symbols[i], uses[i]);
    start_locals();
    for (NodeId id : graph_.inputs())
      if (live(id)) node(id) = mix(node(id), local_[static_cast<size_t>(id)]);
  }

  size_t count_classes() const {
    std::vector<Colour> sorted = colours_.nodes;
    std::sort(sorted.begin(), sorted.end());
    return static_cast<size_t>(std::unique(sorted.begin(), sorted.end()) - sorted.begin());
  }

  std::vector<std::pair<Colour, NodeId>> sorted_inputs() {
    std::vector<std::pair<Colour, NodeId>> inputs;
    for (NodeId id : graph_.inputs())
      if (live(id)) inputs.emplace_back(node(id), id);
    std::sort(inputs.begin(), inputs.end());
    return inputs;
  }

  bool all_inputs_differ() { return first_tied_input() == kInvalidNode; }

  // An input of the least colour that several have. Which one of them does not matter where they
  // are interchangeable, and they nearly always are.
  NodeId first_tied_input() {
    const auto inputs = sorted_inputs();
    for (size_t i = 1; i < inputs.size(); ++i)
      if (inputs[i].first == inputs[i - 1].first) return inputs[i - 1].second;
    return kInvalidNode;
  }

  const Graph& graph_;
  const std::vector<bool> live_;
  const bool symbols_used_;
  std::vector<Colour> op_colours_;
  std::vector<Colour> local_;
  Colours colours_;
};

}  // namespace

Colours refine_colours(const Graph& graph) {
  return Refiner(graph).run();
}

}  // namespace kiln
