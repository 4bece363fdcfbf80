#include "worker/runner/cuda/reference_slices.h"

#include <algorithm>
#include <optional>

namespace kiln::runner {
namespace {

using Sizes = ReferenceSlices::Sizes;

int64_t product(std::span<const int64_t> sizes) {
  int64_t total = 1;
  for (const int64_t size : sizes) total *= size;
  return total;
}

// Nodes of which a part can be computed from parts of their operands.
bool divisible(const Node& node) {
  switch (traits(node.op).kind) {
    case OpKind::kSource:
      return node.op != Op::kIota;
    case OpKind::kUnary:
    case OpKind::kBinary:
    case OpKind::kCompare:
    case OpKind::kSelect:
    case OpKind::kReduce:
      return true;
    case OpKind::kIndexMap:
      return node.op == Op::kView;
    case OpKind::kContract:
      return node.op != Op::kConvolution;
    default:
      return false;
  }
}

// The least and the greatest offset, in steps of `strides`, of elements `part` of a tensor.
Interval offsets(const Sizes& sizes, const Sizes& strides, Interval part) {
  Interval hull;
  int64_t low = part.begin, high = part.end - 1, inner = product(sizes);
  bool apart = false;  // an axis further out has more than one coordinate
  for (size_t k = 0; k < sizes.size(); ++k) {
    inner /= sizes[k];
    const int64_t from = apart ? 0 : low / inner, to = apart ? sizes[k] - 1 : high / inner;
    hull.begin += std::min(from * strides[k], to * strides[k]);
    hull.end += std::max(from * strides[k], to * strides[k]);
    apart = apart || from != to;
    low %= inner;
    high %= inner;
  }
  ++hull.end;
  return hull;
}

// Whole rows of a product's result.
Interval rows_of(const Node& node, const Sizes& sizes, Interval part) {
  if (traits(node.op).kind != OpKind::kContract) return part;
  const int64_t n = sizes.back();
  return {part.begin / n * n, (part.end + n - 1) / n * n};
}

}  // namespace

int64_t ReferenceSlices::count(NodeId id) const {
  return product(sizes_[static_cast<size_t>(id)]);
}

Result<ReferenceSlices> ReferenceSlices::plan(const Graph& graph, std::vector<Sizes> sizes,
                                              std::span<const int64_t> symbols, int64_t limit) {
  ReferenceSlices plan(graph, std::move(sizes), limit);
  const auto nodes = static_cast<size_t>(graph.size());
  plan.views_.resize(nodes);
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (graph.node(id).op != Op::kView) continue;
    const auto& attr = std::get<ViewAttr>(graph.node(id).attr);
    View& view = plan.views_[static_cast<size_t>(id)];
    TRY(view.offset, attr.offset.evaluate(symbols));
    for (const Dim& stride : attr.strides) {
      TRY(const int64_t value, stride.evaluate(symbols));
      view.strides.push_back(value);
    }
  }
  // A slice of whatever size may read too much of some node: that one is held whole after all.
  std::vector<bool> kept(nodes, false);
  for (bool again = true; again;) {
    plan.choose(kept);
    plan.slices_.assign(nodes, {});
    again = false;
    for (NodeId id = 0; id < graph.size() && !again; ++id) {
      if (!plan.whole(id)) continue;
      const NodeId large = plan.cut(id, {0, plan.count(id)}, plan.slices_[static_cast<size_t>(id)]);
      if (large == kInvalidNode) continue;
      kept[static_cast<size_t>(large)] = true;
      again = true;
    }
  }
  return plan;
}

// Nodes in `kept` are held whole. Of the others the large ones are not, and nor is what is read of
// them element by element or row by row: it would have to be computed slice by slice anyway.
void ReferenceSlices::choose(const std::vector<bool>& kept) {
  const Graph& graph = *graph_;
  std::vector<bool> may(static_cast<size_t>(graph.size()));
  for (NodeId id = 0; id < graph.size(); ++id)
    may[static_cast<size_t>(id)] =
        !kept[static_cast<size_t>(id)] && divisible(graph.node(id)) && count(id) > 0;
  for (const NodeId id : graph.outputs()) may[static_cast<size_t>(id)] = false;
  for (NodeId id = 0; id < graph.size(); ++id)
    if (!divisible(graph.node(id)))
      for (const NodeId operand : graph.node(id).operands)
        may[static_cast<size_t>(operand)] = false;
  sliced_.assign(static_cast<size_t>(graph.size()), false);
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (!may[static_cast<size_t>(id)]) continue;
    const Node& node = graph.node(id);
    const bool follows = traits(node.op).kind != OpKind::kContract &&
                         std::any_of(node.operands.begin(), node.operands.end(),
                                     [&](NodeId operand) { return !whole(operand); });
    sliced_[static_cast<size_t>(id)] = count(id) > limit_ || follows;
  }
}

// Cuts `part` of a node until what it reads stays below the limit. The node that is in the way, if
// no slice is small enough.
NodeId ReferenceSlices::cut(NodeId id, Interval part, std::vector<Slice>& slices) const {
  Slice one = slice(id, part);
  const auto large = std::find_if(one.before.rbegin(), one.before.rend(),
                                  [&](const auto& need) { return need.second.count() > limit_; });
  if (large == one.before.rend()) {
    slices.push_back(std::move(one));
    return kInvalidNode;
  }
  const Sizes& sizes = sizes_[static_cast<size_t>(id)];
  const int64_t row = sizes.empty() ? 1 : sizes.back();
  // Half of the rows; half of the row, if there is only one.
  int64_t half = (part.count() + 1) / 2;
  if (part.count() > row) half = (half + row - 1) / row * row;
  const bool rows_only = traits(graph_->node(id).op).kind == OpKind::kContract;
  if (half >= part.count() || (rows_only && part.count() <= row)) return large->first;
  const NodeId in_first = cut(id, {part.begin, part.begin + half}, slices);
  return in_first != kInvalidNode ? in_first : cut(id, {part.begin + half, part.end}, slices);
}

ReferenceSlices::Slice ReferenceSlices::slice(NodeId id, Interval part) const {
  std::vector<std::optional<Interval>> needs(static_cast<size_t>(id));
  const auto need = [&](NodeId node, Interval of) {
    const auto& operands = graph_->node(node).operands;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (whole(operands[i])) continue;
      const auto at = static_cast<size_t>(operands[i]);
      const Interval reads = rows_of(graph_->node(operands[i]), sizes_[at], read(node, of, i));
      needs[at] = needs[at] ? Interval{std::min(needs[at]->begin, reads.begin),
                                       std::max(needs[at]->end, reads.end)}
                            : reads;
    }
  };
  Slice result{part, {}};
  if (part.count() == 0) return result;
  need(id, part);
  for (NodeId node = id; node-- > 0;)
    if (const auto of = needs[static_cast<size_t>(node)]) {
      result.before.emplace_back(node, *of);
      need(node, *of);
    }
  std::reverse(result.before.begin(), result.before.end());
  return result;
}

// The elements that `part` of a node reads of an operand: all of it, unless the node is divisible.
Interval ReferenceSlices::read(NodeId id, Interval part, size_t operand) const {
  const Node& node = graph_->node(id);
  const Sizes& sizes = sizes_[static_cast<size_t>(id)];
  const Sizes& from = sizes_[static_cast<size_t>(node.operands[operand])];
  switch (traits(node.op).kind) {
    case OpKind::kIndexMap: {
      const View& view = views_[static_cast<size_t>(id)];
      const Interval hull = offsets(sizes, view.strides, part);
      return {view.offset + hull.begin, view.offset + hull.end};
    }
    case OpKind::kReduce: {
      const auto& axes = std::get<ReduceAttr>(node.attr).axes;
      Sizes strides;
      int64_t stride = product(from), reach = 0;
      for (size_t k = 0; k < from.size(); ++k) {
        stride /= from[k];
        if (std::binary_search(axes.begin(), axes.end(), static_cast<int>(k)))
          reach += (from[k] - 1) * stride;
        else
          strides.push_back(stride);
      }
      const Interval hull = offsets(sizes, strides, part);
      return {hull.begin, hull.end + reach};
    }
    case OpKind::kContract: {
      const int64_t n = sizes.back(), m = sizes[sizes.size() - 2];
      const int64_t first = part.begin / n, last = (part.end - 1) / n;  // rows
      if (operand == 0) return {first * from.back(), (last + 1) * from.back()};
      const int64_t matrix = from.back() * from[from.size() - 2];
      return {first / m * matrix, (last / m + 1) * matrix};
    }
    default:
      return part;
  }
}

}  // namespace kiln::runner
