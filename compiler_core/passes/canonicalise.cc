#include "compiler_core/passes/passes.h"

#include <algorithm>

#include "compiler_core/ir/builder.h"
#include "compiler_core/passes/colours.h"

namespace kiln {
namespace {

class Canonicaliser {
 public:
  explicit Canonicaliser(const Graph& graph)
      : graph_(graph),
        colours_(refine_colours(graph)),
        map_(static_cast<size_t>(graph.size()), kInvalidNode) {
    builder_.carry_origins(graph);
  }

  Result<Canonical> run(UnusedInputs unused) {
    for (NodeId id : graph_.outputs()) visit(id);
    if (unused == UnusedInputs::kKeepWhatBindsSymbols) keep_inputs_that_bind_symbols();
    number_symbols();
    for (NodeId id : order_) emit(id);
    std::vector<NodeId> outputs;
    for (NodeId id : graph_.outputs()) outputs.push_back(at(id));
    TRY(Graph graph, builder_.finish(std::move(outputs)));
    return Canonical{std::move(graph), std::move(input_order_), std::move(symbol_order_)};
  }

 private:
  NodeId& at(NodeId id) { return map_[static_cast<size_t>(id)]; }
  Colour colour(NodeId id) const { return colours_.nodes[static_cast<size_t>(id)]; }
  // While visiting, map_ holds only whether a node was met.
  static constexpr NodeId kMet = 0;

  std::vector<NodeId> ordered_operands(NodeId id) const {
    std::vector<NodeId> operands = graph_.node(id).operands;
    if (traits(graph_.node(id).op).commutative)
      std::stable_sort(operands.begin(), operands.end(),
                       [this](NodeId a, NodeId b) { return colour(a) < colour(b); });
    return operands;
  }

  // Appends what `root` needs and then root to order_: depth-first with an explicit stack.
  void visit(NodeId root) {
    struct Frame {
      NodeId id;
      std::vector<NodeId> operands;
      size_t next = 0;
    };
    if (at(root) == kMet) return;
    at(root) = kMet;
    std::vector<Frame> stack;
    stack.push_back({root, ordered_operands(root)});
    while (!stack.empty()) {
      Frame& top = stack.back();
      if (top.next == top.operands.size()) {
        order_.push_back(top.id);
        stack.pop_back();
        continue;
      }
      const NodeId operand = top.operands[top.next++];
      if (at(operand) == kMet) continue;
      at(operand) = kMet;
      stack.push_back({operand, ordered_operands(operand)});
    }
  }

  void mark(const std::vector<Dim>& dims, std::vector<bool>& used) const {
    for (const Dim& dim : dims)
      if (!dim.is_constant())
        for (SymbolId symbol : dim.symbols()) used[static_cast<size_t>(symbol)] = true;
  }

  // A size may be known from an input that is otherwise not needed; without that input nobody could
  // say what the size is.
  void keep_inputs_that_bind_symbols() {
    if (graph_.symbols().empty()) return;
    std::vector<bool> used(graph_.symbols().size(), false);
    for (NodeId id : order_) mark(graph_.node(id).shape, used);
    for (NodeId id : order_)
      if (graph_.node(id).op == Op::kInput) forget_bound(id, used);
    for (NodeId id : graph_.inputs())
      if (at(id) != kMet && forget_bound(id, used)) visit(id);
  }

  // Clears the symbols that input `id` has as a size of its own; whether there were any.
  bool forget_bound(NodeId id, std::vector<bool>& used) const {
    bool any = false;
    for (const Dim& dim : graph_.node(id).shape) {
      const std::vector<SymbolId> symbols = dim.symbols();
      if (symbols.size() != 1 || dim != Dim::symbol(symbols[0])) continue;
      any = any || used[static_cast<size_t>(symbols[0])];
      used[static_cast<size_t>(symbols[0])] = false;
    }
    return any;
  }

  // Symbols are numbered as the nodes in order mention them; within one size, by colour.
  void number_symbols() {
    symbol_map_.assign(graph_.symbols().size(), Dim(0));
    if (graph_.symbols().empty()) return;
    std::vector<bool> numbered(graph_.symbols().size(), false);
    for (NodeId id : order_)
      for (const Dim& dim : graph_.node(id).shape) {
        std::vector<SymbolId> symbols = dim.symbols();
        std::stable_sort(symbols.begin(), symbols.end(), [this](SymbolId a, SymbolId b) {
          return colours_.symbols[static_cast<size_t>(a)] <
                 colours_.symbols[static_cast<size_t>(b)];
        });
        for (SymbolId symbol : symbols) {
          if (numbered[static_cast<size_t>(symbol)]) continue;
          numbered[static_cast<size_t>(symbol)] = true;
          const Symbol& old = graph_.symbols()[static_cast<size_t>(symbol)];
          symbol_order_.push_back(symbol);
          symbol_map_[static_cast<size_t>(symbol)] =
              Dim::symbol(builder_.symbol(old.range, old.hint));
        }
      }
  }

  void renumber(Dim& dim) const {
    if (!dim.is_constant()) dim = dim.substitute(symbol_map_);
  }
  void renumber(std::vector<Dim>& dims) const {
    for (Dim& dim : dims) renumber(dim);
  }

  void emit(NodeId id) {
    builder_.set_origin(graph_.origin_of(id));
    Node node = graph_.node(id);
    if (!graph_.symbols().empty()) {
      renumber(node.shape);
      if (auto* view = std::get_if<ViewAttr>(&node.attr)) {
        renumber(view->strides);
        renumber(view->offset);
      } else if (auto* pad = std::get_if<PadAttr>(&node.attr)) {
        renumber(pad->low);
        renumber(pad->high);
      }
    }
    if (auto* input = std::get_if<InputAttr>(&node.attr)) {
      input_order_.push_back(input->index);
      at(id) = builder_.input(node.dtype, std::move(node.shape));
      return;
    }
    node.operands = ordered_operands(id);
    for (NodeId& operand : node.operands) operand = at(operand);
    at(id) = builder_.add(std::move(node));
  }

  const Graph& graph_;
  const Colours colours_;
  std::vector<NodeId> map_;
  std::vector<NodeId> order_;
  std::vector<Dim> symbol_map_;
  std::vector<int> input_order_;
  std::vector<SymbolId> symbol_order_;
  GraphBuilder builder_;
};

}  // namespace

Result<Canonical> canonicalise(const Graph& graph, UnusedInputs unused) {
  return Canonicaliser(graph).run(unused);
}

}  // namespace kiln
