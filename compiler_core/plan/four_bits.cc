#include "compiler_core/plan/four_bits.h"

#include <utility>

namespace kiln {
namespace {

bool is_constant(const Graph& graph, NodeId id, int64_t value) {
  while (graph.node(id).op == Op::kView) id = graph.node(id).operands[0];
  const Node& node = graph.node(id);
  return node.op == Op::kConstant && is_integer(node.dtype) &&
         std::get<ConstantAttr>(node.attr).as_int() == value;
}

// The x of `id` = op(x, constant); kInvalidNode where `id` is another operation.
NodeId operand_beside(const Graph& graph, NodeId id, Op op, int64_t constant) {
  const Node& node = graph.node(id);
  if (node.op != op) return kInvalidNode;
  if (is_constant(graph, node.operands[1], constant)) return node.operands[0];
  return op == Op::kAnd && is_constant(graph, node.operands[0], constant) ? node.operands[1]
                                                                          : kInvalidNode;
}

// Axes as (size, stride) in the order of a walk, those merged that are traversed as one: equal walks
// read a buffer alike.
using Walk = std::vector<std::pair<int64_t, int64_t>>;
void append(Walk& walk, int64_t size, int64_t stride) {
  if (size == 1) return;
  if (!walk.empty() && walk.back().second == stride * size)
    walk.back() = {walk.back().first * size, stride};
  else
    walk.emplace_back(size, stride);
}

struct Reading {
  NodeId base = kInvalidNode;  // what is read
  Walk walk;                   // line by line, of each the depth
  int64_t lines = 0, depth = 0;
};
// A View of which the axes are lines and depth, of a View of something.
std::optional<Reading> reading_of(const Graph& graph, NodeId id, size_t depth, size_t line) {
  const Node& outer = graph.node(id);
  if (outer.op != Op::kView || graph.node(outer.operands[0]).op != Op::kView) return std::nullopt;
  const Node& inner = graph.node(outer.operands[0]);
  const auto& by_lines = std::get<ViewAttr>(outer.attr);
  const auto& by_words = std::get<ViewAttr>(inner.attr);
  for (size_t i = 0; i < outer.shape.size(); ++i) {
    const bool other = i != depth && i != line;
    if (!outer.shape[i].is_constant() || (other && !outer.shape[i].is(1))) return std::nullopt;
  }
  Reading found{inner.operands[0], {}, outer.shape[line].constant(), outer.shape[depth].constant()};
  if (!by_lines.offset.is(0) || !by_words.offset.is(0) || !by_lines.strides[depth].is(1) ||
      !by_lines.strides[line].is(found.depth) || !numel(inner.shape).is(found.lines * found.depth))
    return std::nullopt;
  for (size_t i = 0; i < inner.shape.size(); ++i) {
    if (!inner.shape[i].is_constant() || !by_words.strides[i].is_constant()) return std::nullopt;
    append(found.walk, inner.shape[i].constant(), by_words.strides[i].constant());
  }
  return found;
}

struct Axis {
  int64_t size, of_word, of_place;  // strides
};
// Whether `places` are those of ATen's words, `words` a lane along the depth.
bool reads_words(const Reading& x, const Walk& places, int64_t words) {
  const int64_t steps = x.depth / (32 * words);
  if (x.lines % 8 != 0 || x.depth % (32 * words) != 0) return false;
  Walk word, place;
  for (const Axis& axis :
       {Axis{x.lines / 8, steps * 32 * words, 0}, Axis{8, 4 * words, 0}, Axis{steps, 32 * words, 0},
        Axis{words, 1, 0}, Axis{4, 0, 1}, Axis{4, words, 0}, Axis{2, 0, 4}}) {
    append(word, axis.size, axis.of_word);
    append(place, axis.size, axis.of_place);
  }
  return x.walk == word && places == place;
}

// Everything between `from` and the nodes in `until` or what has no operands.
void collect(const Graph& graph, NodeId from, NodeId until, std::vector<NodeId>& nodes) {
  if (from == until || graph.node(from).operands.empty()) return;
  nodes.push_back(from);
  for (const NodeId operand : graph.node(from).operands) collect(graph, operand, until, nodes);
}

}  // namespace

std::optional<Halves> find_halves(const Graph& graph, NodeId joined) {
  const Node& node = graph.node(joined);
  if (node.op != Op::kConcat || node.dtype != DType::kU8 || node.operands.size() != 2 ||
      !node.shape.back().is(2) || !graph.node(node.operands[0]).shape.back().is(1) ||
      std::get<AxisAttr>(node.attr).axis + 1 != static_cast<int>(node.shape.size()))
    return std::nullopt;
  for (const bool low_first : {true, false}) {
    const NodeId low = node.operands[low_first ? 0 : 1], high = node.operands[low_first ? 1 : 0];
    const NodeId bytes = operand_beside(graph, low, Op::kAnd, 15);
    if (bytes != kInvalidNode && bytes == operand_beside(graph, high, Op::kDiv, 16))
      return Halves{bytes, low_first ? Packing::kLowFirst : Packing::kHighFirst};
  }
  return std::nullopt;
}

std::optional<PackedWords> find_packed_words(const Graph& graph, NodeId values, size_t depth,
                                             size_t line) {
  // ((words & 0xffffffff) / 16^place & 15), in i64.
  const Node& cast = graph.node(values);
  if (cast.op != Op::kCast || cast.dtype != DType::kU8) return std::nullopt;
  const NodeId shifted = operand_beside(graph, cast.operands[0], Op::kAnd, 15);
  if (shifted == kInvalidNode || graph.node(shifted).op != Op::kDiv) return std::nullopt;
  const Node& power = graph.node(graph.node(shifted).operands[1]);
  const NodeId wide = operand_beside(graph, graph.node(shifted).operands[0], Op::kAnd, 0xffffffff);
  if (power.op != Op::kPow || !is_constant(graph, power.operands[0], 16) || wide == kInvalidNode ||
      graph.node(wide).op != Op::kCast)
    return std::nullopt;
  const auto words = reading_of(graph, graph.node(wide).operands[0], depth, line);
  const auto places = reading_of(graph, power.operands[1], depth, line);
  if (!words || !places) return std::nullopt;
  const Node& base = graph.node(words->base);
  if (base.dtype != DType::kI32 || !numel(base.shape).is(words->lines * words->depth / 8) ||
      graph.node(places->base).op != Op::kIota)
    return std::nullopt;
  for (const int64_t of_lane : {1, 2, 4})
    if (reads_words(*words, places->walk, of_lane)) {
      PackedWords found{words->base, 32 * of_lane, {}};
      collect(graph, values, words->base, found.nodes);
      return found;
    }
  return std::nullopt;
}

}  // namespace kiln
