// The index maps of ExpressionPrinter: View, Pad, Concat and Gather become affine indices where the
// ranges of the loop variables allow it, and selections on coordinates where they do not.
#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/base/check.h"
#include "compiler_core/ir/affine.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/printing/size.h"

namespace kiln {
// Where two values meet: a condition that is the same for all lanes (`scalar`, C text) and one that
// is not (`lanes`, a mask); empty text means it always holds.
struct ExpressionPrinter::Condition {
  std::string scalar, lanes;
  Level level = Level::kKernel;

  void require(const Index& at, const char* relation, const Dim& bound) {
    level = std::max(level, at.level());
    if (!at.varies_by_lane()) {
      if (!scalar.empty()) scalar += " && ";
      scalar += fmt::format("{} {} {}", at.text(), relation, bound);
    } else {
      if (!lanes.empty()) lanes += " & ";
      lanes += fmt::format("convert<vi32>(({}) {} {})", at.lanes_text(), relation, bound);
    }
  }
  bool always() const { return scalar.empty() && lanes.empty(); }
};

Index ExpressionPrinter::variable(const Index& from, const std::string& before,
                                  const std::string& after, Dim end) {
  const bool by_lane = from.varies_by_lane();
  // Views of many operands often ask for the same coordinates.
  const Register defined = define(from.level(), !by_lane, by_lane ? "vindex" : "index_t",
                                  before + (by_lane ? from.lanes_text() : from.text()) + after);
  return LoopVar{defined.name, by_lane ? LoopVar::Kind::kLanes : LoopVar::Kind::kScalar,
                 defined.level, 0, std::move(end)};
}

std::vector<Index> ExpressionPrinter::coordinates(const Index& flat, const Shape& shape) {
  std::vector<Index> at(shape.size());
  Index rest = flat;
  for (size_t k = shape.size(); k-- > 0;) {
    const Dim& size = shape[k];
    if (k == 0) {
      at[k] = rest;  // the index lies in the operand, so this lies on the axis
    } else if (const auto split = rest.divide(size)) {
      at[k] = split->second;
      rest = split->first;
    } else {
      // At most the outer axes together; of constants it is known better.
      Dim quotients = numel(Shape(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(k)));
      const Dim greatest = rest.greatest();
      if (size.is_constant() && greatest.is_constant() && greatest.is_valid())
        quotients = greatest.constant() / size.constant() + 1;
      at[k] = variable(rest, "(", fmt::format(") % {}", size), size);
      rest = variable(rest, "(", fmt::format(") / {}", size), quotients);
    }
  }
  return at;
}

Register ExpressionPrinter::view(const Node& node, Indices at) {
  const auto& view = std::get<ViewAttr>(node.attr);
  Index flat(view.offset);
  for (size_t k = 0; k < at.size(); ++k) flat = flat + at[k] * view.strides[k];
  const NodeId source = node.operands[0];
  // A reduction's result is bound to a register whatever the index.
  if (const auto bound = bound_.find(source); bound != bound_.end()) return bound->second;
  if (graph_.node(source).op == Op::kInput) {
    const Buffer& buffer = buffers_.at(source);
    return load(node.dtype, buffer.pointer, flat, numel(graph_.node(source).shape));
  }
  if (graph_.node(source).op == Op::kPhilox) return random(graph_.node(source), flat);
  return value(source, coordinates(flat, graph_.node(source).shape));
}

void ExpressionPrinter::cut(const Index& at, const Dim& boundary) {
  const auto past = at.past_vector_variable();
  if (!past || !boundary.is_constant()) return;
  const int64_t place = boundary.constant() - *past;
  const auto where = std::lower_bound(cuts_.begin(), cuts_.end(), place);
  if (where == cuts_.end() || *where != place) cuts_.insert(where, place);
}

Register ExpressionPrinter::choose(DType dtype, const Condition& condition, const Register& yes,
                                   const Register& no) {
  const Level level = std::max({condition.level, yes.level, no.level});
  Register chosen = yes;
  if (!condition.lanes.empty())
    chosen = define(level, false, dtype,
                    fmt::format("op_select({}, {}, {})", condition.lanes, yes.name, no.name));
  if (!condition.scalar.empty())
    chosen = define(level, chosen.splat && no.splat, dtype,
                    fmt::format("({}) ? {} : {}", condition.scalar, chosen.name, no.name));
  return chosen;
}

// The value of a part of a Pad or Concat, `size` long along the axis they cut, at an index brought
// into it. A part that is empty is never chosen, and must not be read.
Register ExpressionPrinter::part(NodeId id, Indices at, const Dim& size) {
  const std::string outer = readable_;
  if (lower_bound(size, graph_.symbols()) < 1)
    readable_ += fmt::format("{}{} > 0", outer.empty() ? "" : " && ", size);
  const Register value = this->value(id, at);
  readable_ = outer;
  return value;
}

Register ExpressionPrinter::pad(const Node& node, Indices at) {
  const auto& pad = std::get<PadAttr>(node.attr);
  const Shape& shape = graph_.node(node.operands[0]).shape;
  std::vector<Index> inner;
  Condition inside;
  Dim smallest = 1;
  for (size_t k = 0; k < at.size(); ++k) {
    const Dim& size = shape[k];
    const Index index = at[k] + Index(pad.low[k] * -1);
    if (is_less(index.greatest(), 0) || is_at_least(index.least(), size))
      return constant(node.dtype, pad.value);
    const bool below = !is_at_least(index.least(), 0), above = !is_less(index.greatest(), size);
    if (below) inside.require(index, ">=", 0);
    if (above) inside.require(index, "<", size);
    cut(index, 0);
    cut(index, size);
    if (below || above) smallest = smallest * size;
    inner.push_back(below || above
                        ? variable(index, "clamp_index(", fmt::format(", {})", size - 1), size)
                        : index);
  }
  const Register x = part(node.operands[0], inner, smallest);
  return inside.always() ? x : choose(node.dtype, inside, x, constant(node.dtype, pad.value));
}

Register ExpressionPrinter::concat(const Node& node, Indices at) {
  const auto axis = static_cast<size_t>(std::get<AxisAttr>(node.attr).axis);
  const Index& along = at[axis];
  std::optional<Register> result;  // of the parts from here on
  Dim end = node.shape[axis];
  for (size_t part = node.operands.size(); part-- > 0;) {
    const Dim& size = graph_.node(node.operands[part]).shape[axis];
    const Dim begin = end - size;
    if (part > 0) cut(along, begin);
    if (!size.is(0) && !is_at_least(along.least(), end) && !is_less(along.greatest(), begin)) {
      std::vector<Index> inner(at.begin(), at.end());
      inner[axis] = along + Index(begin * -1);
      const bool clamped = !is_at_least(along.least(), begin) || !is_less(along.greatest(), end);
      if (clamped)
        inner[axis] = variable(inner[axis], "clamp_index(", fmt::format(", {})", size - 1), size);
      const Register x = this->part(node.operands[part], inner, clamped ? size : Dim(1));
      Condition before;
      before.require(along, "<", end);
      result = result ? choose(node.dtype, before, x, *result) : x;
    }
    end = begin;
  }
  CHECK(result.has_value(), "an index of a concat lies in one of its parts");
  return *result;
}

Register ExpressionPrinter::gather(const Node& node, Indices at) {
  const size_t index_rank = graph_.node(node.operands[1]).shape.size();
  const Node& from = graph_.node(node.operands[0]);
  const Register index = value(node.operands[1], at.first(index_rank));
  const Dim& rows = from.shape[0];
  LoopVar row{fresh(), index.splat ? LoopVar::Kind::kScalar : LoopVar::Kind::kLanes, index.level, 0,
              rows};
  emit(index.level,
       fmt::format("const {} {} = gather_row({}, {}){};", index.splat ? "index_t" : "vindex",
                   row.name, index.name, rows, index.splat ? "[0]" : ""));
  std::vector<Index> inner = {row};
  inner.insert(inner.end(), at.begin() + static_cast<std::ptrdiff_t>(index_rank), at.end());
  return value(node.operands[0], inner);
}

}  // namespace kiln
