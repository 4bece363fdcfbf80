#include "compiler_core/plan/attention/mask_bounds.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "compiler_core/ir/affine.h"
#include "compiler_core/passes/constant_value.h"

namespace kiln {
namespace {

// The one value of all elements of a constant of floats.
std::optional<double> float_value(const Graph& graph, NodeId id) {
  const auto value = is_float(graph.node(id).dtype) ? constant_value(graph, id) : std::nullopt;
  return value ? std::optional(value->as_double()) : std::nullopt;
}
bool is_minus_infinity(const Graph& graph, NodeId id) {
  return float_value(graph, id) == -std::numeric_limits<double>::infinity();
}
// So far below scores that their exponentials beside one of these are 0.
bool is_far(const Graph& graph, NodeId id) {
  constexpr double kFar = -1e30;
  const auto value = float_value(graph, id);
  return value && *value <= kFar;
}

// Operand 0 of a Select decides; the operand that is `kept` where a row sees, and whether it does where that
// is true.
struct Selected {
  NodeId condition = kInvalidNode, kept = kInvalidNode;
  bool where_true = true;
};
// select(seen, x, hidden), or its opposite.
template <class IsHidden>
std::optional<Selected> find_selected(const Node& node, const IsHidden& is_hidden) {
  if (node.op != Op::kSelect) return std::nullopt;
  if (is_hidden(node.operands[2])) return Selected{node.operands[0], node.operands[1], true};
  if (is_hidden(node.operands[1])) return Selected{node.operands[0], node.operands[2], false};
  return std::nullopt;
}

// Whether it has the values of a half.
bool is_rounded(const Graph& graph, NodeId id) {
  for (; graph.node(id).op == Op::kCast; id = graph.node(id).operands[0])
    if (is_half(graph.node(id).dtype)) return true;
  return is_half(graph.node(id).dtype);
}

NodeId without_casts(const Graph& graph, NodeId id) {
  while (graph.node(id).op == Op::kCast && is_float(graph.node(graph.node(id).operands[0]).dtype))
    id = graph.node(id).operands[0];
  return id;
}

// What conditions on a key's place and a row's say of scores of one shape.
class Conditions {
 public:
  Conditions(const Graph& graph, NodeId scores)
      : graph_(graph),
        rank_(graph.node(scores).shape.size()),
        rows_(graph.node(scores).shape[rank_ - 2]),
        keys_(graph.node(scores).shape[rank_ - 1]) {}

  // What holds wherever `condition` is `seen`, without `within`; whether it says nothing else.
  bool find(NodeId condition, bool seen, MaskBounds& bounds) const {
    bool alone = true;
    std::vector<std::pair<NodeId, bool>> stack = {{condition, seen}};
    while (!stack.empty()) {
      const auto [id, holds] = stack.back();
      stack.pop_back();
      const Node& x = node(id);
      if (x.op == Op::kNot) {
        stack.emplace_back(x.operands[0], !holds);
      } else if (x.op == (holds ? Op::kAnd : Op::kOr)) {
        for (NodeId operand : x.operands) stack.emplace_back(operand, holds);
      } else {
        const bool found = add_bounds(x, holds, bounds);
        alone = alone && found;
      }
    }
    return alone;
  }

  // Whether the bounds show each row the key of its own place, which there is.
  bool show_each_row_its_own(const MaskBounds& bounds) const {
    const auto is_known = [&](const Dim& size) { return lower_bound(size, graph_.symbols()) >= 0; };
    return (bounds.reach || bounds.past) && is_known(bounds.reach.value_or(0)) &&
           is_known(bounds.past.value_or(0)) && is_known(keys_ - rows_);
  }

 private:
  const Node& node(NodeId id) const { return graph_.node(id); }

  struct Affine {  // key * key's place + row * row's place + constant
    Dim key = 0, row = 0, constant = 0;
    Affine operator-(const Affine& b) const {
      return {key - b.key, row - b.row, constant - b.constant};
    }
    Affine operator+(const Affine& b) const {
      return {key + b.key, row + b.row, constant + b.constant};
    }
  };

  // a <= b is a - b <= 0; its opposite b - a <= -1; |a| <= b is a <= b and -a <= b.
  bool add_bounds(const Node& compare, bool holds, MaskBounds& bounds) const {
    if (compare.op != Op::kLe && compare.op != Op::kLt) return false;
    const Node& left = node(compare.operands[0]);
    const bool both = left.op == Op::kAbs && holds;
    const auto a = affine(both ? left.operands[0] : compare.operands[0]);
    const auto b = affine(compare.operands[1]);
    if (!a || !b) return false;
    const bool strict = (compare.op == Op::kLt) == holds;
    const Affine difference = holds ? *a - *b : *b - *a;
    return add_bound(difference, strict, bounds) &&
           (!both || add_bound(Affine{} - *a - *b, strict, bounds));
  }
  // difference <= 0, or < 0.
  static bool add_bound(const Affine& difference, bool strict, MaskBounds& bounds) {
    const bool ahead = difference.key.is(1) && difference.row.is(-1);
    const bool behind = difference.key.is(-1) && difference.row.is(1);
    std::optional<Dim>& bound = ahead ? bounds.reach : bounds.past;
    if ((!ahead && !behind) || bound) return false;
    bound = difference.constant * -1 - (strict ? 1 : 0);
    return true;
  }

  std::optional<Affine> affine(NodeId id) const {
    const Node& x = node(id);
    if (is_float(x.dtype)) return std::nullopt;
    if (x.op == Op::kView) return view_of_iota(x);
    if (x.op != Op::kAdd && x.op != Op::kSub) return std::nullopt;
    const auto a = leaf(x.operands[0]), b = leaf(x.operands[1]);
    if (!a || !b) return std::nullopt;
    return x.op == Op::kAdd ? *a + *b : *a - *b;
  }
  std::optional<Affine> leaf(NodeId id) const {
    return node(id).op == Op::kView && !is_float(node(id).dtype) ? view_of_iota(node(id))
                                                                 : std::nullopt;
  }
  std::optional<Affine> view_of_iota(const Node& x) const {
    const auto& view = std::get<ViewAttr>(x.attr);
    const Node& source = node(x.operands[0]);
    if (source.op == Op::kConstant)
      return Affine{0, 0, std::get<ConstantAttr>(source.attr).as_int()};
    if (source.op != Op::kIota || x.shape.size() != rank_) return std::nullopt;
    for (size_t i = 0; i + 2 < rank_; ++i)
      if (!view.strides[i].is(0)) return std::nullopt;
    return Affine{view.strides[rank_ - 1], view.strides[rank_ - 2], view.offset};
  }

  const Graph& graph_;
  const size_t rank_;
  const Dim rows_, keys_;
};

// Of x + select(seen, 0, the least finite number): beside a score that a row sees, all others weigh nothing, as
// with -inf. A row that sees none would weigh all keys alike, so each has to see its own.
MaskBounds bounds_of_added(const Graph& graph, NodeId scores) {
  const Node& add = graph.node(without_casts(graph, scores));
  if (add.op != Op::kAdd) return {};
  const Conditions conditions(graph, scores);
  for (const size_t side : {size_t{0}, size_t{1}}) {
    const auto selected = find_selected(graph.node(without_casts(graph, add.operands[side])),
                                        [&](NodeId id) { return is_far(graph, id); });
    if (!selected || float_value(graph, selected->kept) != 0.0) continue;
    MaskBounds bounds;
    if (!conditions.find(selected->condition, selected->where_true, bounds) ||
        !conditions.show_each_row_its_own(bounds))
      continue;
    const NodeId x = add.operands[1 - side];
    if (!is_rounded(graph, scores) || is_rounded(graph, x)) bounds.within = x;
    return bounds;
  }
  return {};
}

}  // namespace

NodeId scores_under_mask(const Graph& graph, NodeId scores) {
  const auto selected =
      find_selected(graph.node(scores), [&](NodeId id) { return is_minus_infinity(graph, id); });
  return selected ? selected->kept : scores;
}

MaskBounds find_mask_bounds(const Graph& graph, NodeId scores) {
  if (graph.node(scores).op != Op::kSelect) return bounds_of_added(graph, scores);
  const auto selected =
      find_selected(graph.node(scores), [&](NodeId id) { return is_minus_infinity(graph, id); });
  if (!selected) return {};
  MaskBounds bounds;
  const bool alone =
      Conditions(graph, scores).find(selected->condition, selected->where_true, bounds);
  if (alone && (bounds.reach || bounds.past)) bounds.within = selected->kept;
  return bounds;
}

Result<double> shown_share(const MaskBounds& mask, int64_t rows, int64_t keys,
                           std::span<const int64_t> symbols) {
  if ((!mask.reach && !mask.past) || rows <= 0 || keys <= 0) return 1.0;
  TRY(const int64_t reach, mask.reach.value_or(0).evaluate(symbols));
  TRY(const int64_t past, mask.past.value_or(0).evaluate(symbols));
  double shown = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t end = mask.reach ? std::clamp<int64_t>(row + reach + 1, 0, keys) : keys;
    const int64_t begin = mask.past ? std::clamp<int64_t>(row - past, 0, keys) : 0;
    shown += static_cast<double>(std::max<int64_t>(end - begin, 0));
  }
  return shown / (static_cast<double>(rows) * static_cast<double>(keys));
}

}  // namespace kiln
