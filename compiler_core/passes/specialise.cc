#include "compiler_core/passes/specialise.h"

#include <algorithm>
#include <cmath>

#include "compiler_core/passes/rewrite.h"

namespace kiln {
namespace {

std::string to_string(const SymbolRange& range) {
  return std::to_string(range.min) + " to " + std::to_string(range.max);
}

Status check(const Graph& graph, std::span<const Symbol> symbols) {
  if (symbols.size() != graph.symbols().size())
    return fail(Code::kInvalidArgument, std::to_string(symbols.size()) + " ranges for " +
                                            std::to_string(graph.symbols().size()) + " symbols");
  for (size_t i = 0; i < symbols.size(); ++i) {
    const SymbolRange &wanted = symbols[i].range, &whole = graph.symbols()[i].range;
    if (wanted.min > wanted.max || wanted.min < whole.min || wanted.max > whole.max)
      return fail(Code::kInvalidArgument, "sizes " + to_string(wanted) + " of s" +
                                              std::to_string(i) + ", which goes from " +
                                              to_string(whole));
  }
  return {};
}

void substitute(std::vector<Dim>& dims, std::span<const Dim> values) {
  for (Dim& dim : dims) dim = dim.substitute(values);
}

void substitute(Node& node, std::span<const Dim> values) {
  substitute(node.shape, values);
  if (auto* view = std::get_if<ViewAttr>(&node.attr)) {
    substitute(view->strides, values);
    view->offset = view->offset.substitute(values);
  } else if (auto* pad = std::get_if<PadAttr>(&node.attr)) {
    substitute(pad->low, values);
    substitute(pad->high, values);
  }
}

}  // namespace

Result<Graph> specialise(const Graph& graph, std::span<const Symbol> symbols) {
  TRY_STATUS(check(graph, symbols));
  GraphBuilder builder;
  builder.carry_origins(graph);
  std::vector<Dim> values;
  for (const Symbol& symbol : symbols)
    values.push_back(symbol.range.min == symbol.range.max
                         ? Dim(symbol.range.min)
                         : Dim::symbol(builder.symbol(symbol.range, symbol.hint)));
  std::vector<NodeId> map(static_cast<size_t>(graph.size()), kInvalidNode);
  // Inputs stay where they are, also those that nothing reads.
  for (NodeId id : graph.inputs()) {
    Node input = graph.node(id);
    substitute(input, values);
    map[static_cast<size_t>(id)] = builder.input(input.dtype, std::move(input.shape));
  }
  for (NodeId id = 0; id < graph.size(); ++id) {
    Node node = graph.node(id);
    if (node.op == Op::kInput) continue;
    substitute(node, values);
    std::vector<NodeId> operands;
    for (NodeId operand : node.operands) operands.push_back(map[static_cast<size_t>(operand)]);
    builder.set_origin(graph.origin_of(id));
    map[static_cast<size_t>(id)] = emit(builder, node, std::move(operands));
    if (!builder.ok()) break;
  }
  std::vector<NodeId> outputs;
  for (NodeId id : graph.outputs()) outputs.push_back(map[static_cast<size_t>(id)]);
  return builder.finish(std::move(outputs));
}

Result<std::vector<Symbol>> cut_range(const Symbol& symbol, std::vector<int64_t> hints) {
  if (hints.empty()) return std::vector<Symbol>{symbol};
  std::sort(hints.begin(), hints.end());
  hints.erase(std::unique(hints.begin(), hints.end()), hints.end());
  if (hints.front() < symbol.range.min || hints.back() > symbol.range.max)
    return fail(
        Code::kInvalidArgument,
        "a hint of " +
            std::to_string(hints.front() < symbol.range.min ? hints.front() : hints.back()) +
            " is outside the sizes " + to_string(symbol.range));
  std::vector<Symbol> parts;
  int64_t min = symbol.range.min;
  for (size_t i = 0; i + 1 < hints.size(); ++i) {
    const double low = static_cast<double>(hints[i]), high = static_cast<double>(hints[i + 1]);
    const int64_t middle = std::clamp(static_cast<int64_t>(std::sqrt(low) * std::sqrt(high)),
                                      hints[i], hints[i + 1] - 1);
    parts.push_back({{min, middle}, hints[i]});
    min = middle + 1;
  }
  parts.push_back({{min, symbol.range.max}, hints.back()});
  return parts;
}

}  // namespace kiln
