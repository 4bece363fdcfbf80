#include <algorithm>
#include <optional>

#include "compiler_core/ir/affine.h"
#include "compiler_core/passes/constant_value.h"
#include "compiler_core/passes/passes.h"
#include "compiler_core/passes/rewrite.h"

namespace kiln {
namespace {

// An i64 value as a View of the line 0, 1, 2, ...: `offset` plus a stride for each step along each axis.
// Axes of size 1 have stride 0.
using Places = ViewAttr;

// A node's places, or the one value of all elements of a bool, are known where they hold whatever the inputs
// are.
class KnownValues {
 public:
  explicit KnownValues(const Graph& graph) : graph_(graph) {
    for (NodeId id = 0; id < graph.size(); ++id) {
      const Node& node = graph.node(id);
      std::optional<Places> places;
      if (node.dtype == DType::kI64) places = places_of(node);
      if (places) places = canonical_view(node.shape, *std::move(places));
      places_.push_back(std::move(places));
      truth_.push_back(node.dtype == DType::kBool ? truth_of(node) : std::nullopt);
    }
  }

  const std::optional<Places>& places(NodeId id) const { return places_[at(id)]; }
  std::optional<bool> truth(NodeId id) const { return truth_[at(id)]; }
  std::optional<Dim> uniform(NodeId id) const {
    const auto& known = places(id);
    const bool one = known && std::ranges::all_of(known->strides,
                                                  [](const Dim& stride) { return stride.is(0); });
    return one ? std::optional(known->offset) : std::nullopt;
  }

  // Whether the index of a Gather names rows that there are.
  bool is_within(NodeId index, const Dim& rows) const {
    const auto& known = places(index);
    if (!known) return false;
    const auto range = range_of(graph_.node(index).shape, *known);
    return range && is_at_least(range->first, 0) && is_at_least(rows - Dim(1), range->second);
  }

 private:
  static size_t at(NodeId id) { return static_cast<size_t>(id); }
  bool is_at_least(const Dim& a, const Dim& b) const {
    return lower_bound(a - b, graph_.symbols()) >= 0;
  }

  // The least and the greatest of all elements; nullopt where the sign of a stride is not known.
  std::optional<std::pair<Dim, Dim>> range_of(const Shape& shape, const Places& places) const {
    Dim least = places.offset, most = places.offset;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      const Dim span = places.strides[axis] * (shape[axis] - Dim(1));
      if (is_at_least(places.strides[axis], 0))
        most = most + span;
      else if (is_at_least(0, places.strides[axis]))
        least = least + span;
      else
        return std::nullopt;
    }
    return std::pair(least, most);
  }

  static Places of_number(const Node& node, const Dim& number) {
    return {std::vector<Dim>(node.shape.size(), Dim(0)), number};
  }

  // The sum, where the second one counts `sign` times.
  static Places sum(const Places& a, const Places& b, int64_t sign = 1) {
    Places result = a;
    result.offset = a.offset + b.offset * Dim(sign);
    for (size_t axis = 0; axis < a.strides.size(); ++axis)
      result.strides[axis] = a.strides[axis] + b.strides[axis] * Dim(sign);
    return result;
  }
  static Places multiple(const Places& a, const Dim& factor) {
    Places result = a;
    result.offset = a.offset * factor;
    for (Dim& stride : result.strides) stride = stride * factor;
    return result;
  }

  std::optional<Places> places_of(const Node& node) const {
    const auto operand = [&](size_t i) -> const std::optional<Places>& {
      return places(node.operands[i]);
    };
    switch (node.op) {
      case Op::kConstant:
        return of_number(node, std::get<ConstantAttr>(node.attr).as_int());
      case Op::kIota:
        return Places{{Dim(1)}, 0};
      case Op::kCast:
        if (const auto known = truth(node.operands[0])) return of_number(node, *known ? 1 : 0);
        return std::nullopt;
      case Op::kNeg:
        if (!operand(0)) return std::nullopt;
        return multiple(*operand(0), -1);
      case Op::kAdd:
      case Op::kSub:
        if (!operand(0) || !operand(1)) return std::nullopt;
        return sum(*operand(0), *operand(1), node.op == Op::kAdd ? 1 : -1);
      case Op::kMul:
        for (const size_t i : {size_t{0}, size_t{1}})
          if (const auto factor = uniform(node.operands[i]); factor && operand(1 - i))
            return multiple(*operand(1 - i), *factor);
        return std::nullopt;
      case Op::kMax:
      case Op::kMin:
        return extreme(node);
      case Op::kSelect:
        if (const auto known = truth(node.operands[0])) return operand(*known ? 1 : 2);
        return std::nullopt;
      case Op::kView:
        if (!operand(0)) return std::nullopt;
        return viewed(graph_.node(node.operands[0]), *operand(0), node);
      case Op::kConcat:
        return joined(node);
      case Op::kReduceSum:
        return reduced(node);
      case Op::kScanSum:
        return scanned(node);
      case Op::kGather:
        return gathered(node);
      default:
        return std::nullopt;
    }
  }

  std::optional<Places> extreme(const Node& node) const {
    const auto &a = places(node.operands[0]), &b = places(node.operands[1]);
    if (!a || !b) return std::nullopt;
    const auto range = range_of(node.shape, sum(*a, *b, -1));
    if (!range) return std::nullopt;
    const bool takes_greater = node.op == Op::kMax;
    if (is_at_least(range->first, 0)) return takes_greater ? a : b;
    if (is_at_least(0, range->second)) return takes_greater ? b : a;
    return std::nullopt;
  }

  std::optional<Places> viewed(const Node& source, const Places& places, const Node& view) const {
    Node line{Op::kView, source.dtype, source.shape, {}, places};
    return compose_views(line, view.shape, std::get<ViewAttr>(view.attr));
  }

  // Parts that go on where the one before ends.
  std::optional<Places> joined(const Node& node) const {
    const auto axis = static_cast<size_t>(std::get<AxisAttr>(node.attr).axis);
    std::optional<Places> whole;
    std::optional<Dim> step;
    Dim begin = 0;
    for (const NodeId part : node.operands) {
      const auto& places = this->places(part);
      if (!places) return std::nullopt;
      const Dim& length = graph_.node(part).shape[axis];
      if (!whole) whole = *places;
      if (!length.is(1)) {
        if (step && *step != places->strides[axis]) return std::nullopt;
        step = places->strides[axis];
      } else if (!step && !begin.is(0)) {
        return std::nullopt;  // single elements alone
      }
      begin = begin + length;
    }
    if (!whole || !step) return std::nullopt;
    begin = 0;
    whole->strides[axis] = *step;
    for (const NodeId part : node.operands) {
      Places expected = *whole;
      expected.offset = whole->offset + begin * *step;
      const Node& of = graph_.node(part);
      if (canonical_view(of.shape, expected) != *places(part)) return std::nullopt;
      begin = begin + of.shape[axis];
    }
    return whole;
  }

  std::optional<Places> reduced(const Node& node) const {
    const auto number = uniform(node.operands[0]);
    if (!number) return std::nullopt;
    Dim count = 1;
    for (const int axis : std::get<ReduceAttr>(node.attr).axes)
      count = count * graph_.node(node.operands[0]).shape[static_cast<size_t>(axis)];
    return of_number(node, *number * count);
  }

  std::optional<Places> scanned(const Node& node) const {
    const auto number = uniform(node.operands[0]);
    if (!number) return std::nullopt;
    Places places = of_number(node, *number);
    places.strides[static_cast<size_t>(std::get<AxisAttr>(node.attr).axis)] = *number;
    return places;
  }

  std::optional<Places> gathered(const Node& node) const {
    const auto &table = places(node.operands[0]), &index = places(node.operands[1]);
    const Shape& rows = graph_.node(node.operands[0]).shape;
    if (!table || !index || !is_within(node.operands[1], rows[0])) return std::nullopt;
    Places places = multiple(*index, table->strides[0]);
    places.offset = places.offset + table->offset;
    places.strides.insert(places.strides.end(), table->strides.begin() + 1, table->strides.end());
    return places;
  }

  std::optional<bool> truth_of(const Node& node) const {
    if (node.op == Op::kConstant) return std::get<ConstantAttr>(node.attr).as_int() != 0;
    if (node.op == Op::kView) return truth(node.operands[0]);
    if (traits(node.op).kind != OpKind::kCompare) return std::nullopt;
    const auto &a = places(node.operands[0]), &b = places(node.operands[1]);
    if (!a || !b) return std::nullopt;
    const auto range = range_of(node.shape, sum(*a, *b, -1));
    if (!range) return std::nullopt;
    const auto& [least, most] = *range;
    const bool less = is_at_least(-1, most), greater = is_at_least(least, 1);
    const bool no_less = is_at_least(least, 0), no_greater = is_at_least(0, most);
    const auto decided = [](bool yes, bool no) {
      return yes ? std::optional(true) : no ? std::optional(false) : std::nullopt;
    };
    switch (node.op) {
      case Op::kLt:
        return decided(less, no_less);
      case Op::kLe:
        return decided(no_greater, greater);
      case Op::kEq:
        return decided(no_less && no_greater, less || greater);
      default:
        return decided(less || greater, no_less && no_greater);
    }
  }

  const Graph& graph_;
  std::vector<std::optional<Places>> places_;
  std::vector<std::optional<bool>> truth_;
};

// Rows that lie at known places are read, not picked. REQUIRES: the index of `gather` is within its table.
NodeId rows_at(GraphBuilder& b, NodeId table, const Node& gather, const Places& index) {
  const std::vector<Dim> rows = contiguous_strides(b.shape(table));
  std::vector<Dim> strides;
  for (const Dim& stride : index.strides) strides.push_back(stride * rows[0]);
  strides.insert(strides.end(), rows.begin() + 1, rows.end());
  return b.view(table, gather.shape, std::move(strides), index.offset * rows[0]);
}

// What stands for node `id`, whose operands are rewritten; kInvalidNode: it stays as it is.
NodeId folded(Rewrite& rewrite, const KnownValues& known, NodeId id) {
  GraphBuilder& b = rewrite.builder;
  const Graph& graph = rewrite.graph;
  const Node& node = graph.node(id);
  if (constant_value(graph, id)) return kInvalidNode;  // nothing is simpler
  const auto everywhere = [&](int64_t value) {
    return filled(b, node.dtype, {static_cast<uint64_t>(value)}, node.shape);
  };
  if (const auto truth = known.truth(id)) return everywhere(*truth ? 1 : 0);
  if (const auto number = known.uniform(id); number && number->is_constant())
    return everywhere(number->constant());
  if (node.op == Op::kGather) {
    const auto [table, index] = std::pair(node.operands[0], node.operands[1]);
    return known.is_within(index, graph.node(table).shape[0])
               ? rows_at(b, rewrite[table], node, *known.places(index))
               : kInvalidNode;
  }
  if (node.op == Op::kSelect)
    if (const auto truth = known.truth(node.operands[0]))
      return rewrite[node.operands[*truth ? 1 : 2]];
  return kInvalidNode;
}

}  // namespace

Result<Graph> fold_places(const Graph& graph) {
  if (graph.symbols().empty()) return graph;
  const KnownValues known(graph);
  return replace_where(graph,
                       [&](Rewrite& rewrite, NodeId id) { return folded(rewrite, known, id); });
}

}  // namespace kiln
