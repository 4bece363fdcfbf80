// The index maps of ExpressionPrinter: View, Pad, Concat and Gather become affine indices where the
// ranges of the loop variables allow it, and selections on coordinates where they do not.
#include <fmt/core.h>

#include <algorithm>
#include <tuple>

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

  // `alike`: lane 0 decides for all.
  void require(const Index& at, const char* relation, const Dim& bound, bool alike = false) {
    level = std::max(level, at.level());
    if (alike || !at.varies_by_lane()) {
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

// How many values an index has, divided by the size of axis `k`: at most the outer axes together; of
// constants it is known better.
static Dim quotients_of(const Index& index, const Shape& shape, size_t k) {
  const Dim greatest = index.greatest();
  if (shape[k].is_constant() && greatest.is_constant() && greatest.is_valid())
    return greatest.constant() / shape[k].constant() + 1;
  return numel(Shape(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(k)));
}

// Whether lanes are neighbours from a multiple of their number on.
bool ExpressionPrinter::is_whole_vector(const Index& at) const {
  return lanes_ > 0 && !at.has_lanes() && at.lane_stride().is(1) && at.alignment(lanes_) == lanes_;
}

std::vector<Index> ExpressionPrinter::coordinates(const Index& flat, const Shape& shape) {
  std::vector<Index> at(shape.size());
  Index rest = flat;
  for (size_t k = shape.size(); k-- > 0;) {
    const Dim& size = shape[k];
    if (k == 0) {
      at[k] = rest;  // the index lies in the operand, so this lies on the axis
      continue;
    }
    if (const auto split = rest.divide(size)) {
      at[k] = split->second;
      rest = split->first;
      continue;
    }
    // The multiples of a size do not change the remainder: only the rest is divided.
    Index multiples;
    if (const auto parts = rest.take_multiples(size)) std::tie(multiples, rest) = *parts;
    if (is_whole_vector(rest) && is_multiple(size, lanes_)) {
      const std::string text = fmt::format("({})", rest.text());
      const auto define = [&](const char* op) {
        return this->define(rest.level(), true, "index_t", fmt::format("{} {} {}", text, op, size));
      };
      const Register place = define("%"), line = define("/");
      at[k] = LoopVar{place.name, LoopVar::Kind::kVector, place.level, 0, size, lanes_};
      rest = multiples + Index(LoopVar{line.name, LoopVar::Kind::kScalar, line.level, 0,
                                       quotients_of(rest, shape, k)});
    } else {
      const Dim quotients = quotients_of(rest, shape, k);
      at[k] = variable(rest, "(", fmt::format(") % {}", size), size);
      rest = multiples + variable(rest, "(", fmt::format(") / {}", size), quotients);
    }
  }
  return at;
}

Index ExpressionPrinter::flat(const Node& view, Indices at) {
  const auto& [strides, offset] = std::get<ViewAttr>(view.attr);
  Index flat(offset);
  for (size_t k = 0; k < at.size(); ++k) flat = flat + at[k] * strides[k];
  return flat;
}

std::vector<Index> ExpressionPrinter::viewed(const Node& view, Indices at) {
  return coordinates(flat(view, at), graph_.node(view.operands[0]).shape);
}

Register ExpressionPrinter::view(const Node& node, Indices at) {
  const Index flat = this->flat(node, at);
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
  Register value = this->value(id, at);
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

// Whether all lanes lie in the same part: no vector crosses an edge.
bool ExpressionPrinter::choose_alike(const Index& along, std::span<const Part> parts) const {
  if (!along.varies_by_lane()) return true;
  return is_whole_vector(along) && std::ranges::all_of(parts, [this](const Part& part) {
           return is_multiple(part.begin, lanes_) && is_multiple(part.end, lanes_);
         });
}

// The parts of a Concat that an index may lie in, ascending; none is known to be empty.
std::vector<ExpressionPrinter::Part> ExpressionPrinter::reach(const Node& node,
                                                              const Index& along) {
  const auto axis = static_cast<size_t>(std::get<AxisAttr>(node.attr).axis);
  std::vector<Part> parts;
  Dim begin = 0;
  for (size_t i = 0; i < node.operands.size(); ++i) {
    const NodeId operand = node.operands[i];
    const Dim& size = graph_.node(operand).shape[axis];
    const Dim end = begin + size;
    if (i > 0) cut(along, begin);
    if (!size.is(0) && !is_at_least(along.least(), end) && !is_less(along.greatest(), begin))
      parts.push_back({operand, begin, end});
    begin = end;
  }
  return parts;
}

// Whether the part is read like those whose lanes are `stride` apart: as a vector, or a value for all.
bool ExpressionPrinter::is_read_at(const Part& part, Indices at, const Dim& stride) const {
  if (bound_.contains(part.id) || packed_.contains(part.id) || !lies_in_memory(part.id))
    return false;
  const Index from = place(part.id, at);
  return !from.has_lanes() && from.lane_stride() == stride && (stride.is(0) || stride.is(1)) &&
         lower_bound(part.end - part.begin, graph_.symbols()) >= 1;
}

// The address of what is read of the parts, of which few comparisons choose one; `along` counts from
// the first part's begin. Raises `level`, lowers `alignment` to what they have in common.
std::string ExpressionPrinter::address(std::span<const Part> parts, std::vector<Index> at,
                                       size_t axis, const Index& along, const Dim& origin,
                                       Level& level, int64_t& alignment) const {
  if (parts.size() == 1) {
    const Node& node = graph_.node(parts[0].id);
    at[axis] = along + Index(origin - parts[0].begin);
    const Index from = place(parts[0].id, at);
    level = std::max(level, from.level());
    alignment = std::min(alignment, this->alignment(from));
    const NodeId source = node.op == Op::kView ? node.operands[0] : parts[0].id;
    return fmt::format("{} + {}", buffers_.at(source).pointer, from.text());
  }
  const size_t half = parts.size() / 2;
  const std::string lower = address(parts.first(half), at, axis, along, origin, level, alignment);
  const std::string upper =
      address(parts.subspan(half), std::move(at), axis, along, origin, level, alignment);
  return fmt::format("({} < {} ? {} : {})", along.text(), parts[half].begin - origin, lower, upper);
}

// The value of neighbouring parts of a Concat, at an index brought into them. What lies in memory is
// read once, at the address of the part that the index lies in.
Register ExpressionPrinter::read(const Node& node, std::span<const Part> parts, Indices at,
                                 bool alike) {
  const auto axis = static_cast<size_t>(std::get<AxisAttr>(node.attr).axis);
  const Dim origin = parts.front().begin, size = parts.back().end - origin;
  const Index& along = at[axis];
  const bool is_inside =
      is_at_least(along.least(), origin) && is_less(along.greatest(), parts.back().end);
  std::vector<Index> inner(at.begin(), at.end());
  inner[axis] = along + Index(origin * -1);
  if (!is_inside && alike && along.varies_by_lane()) {
    const Register first =
        define(along.level(), true, "index_t",
               fmt::format("clamp_index({}, {})", inner[axis].text(), size - lanes_));
    inner[axis] = LoopVar{first.name, LoopVar::Kind::kVector, first.level, 0, size, lanes_};
  } else if (!is_inside) {
    inner[axis] = variable(inner[axis], "clamp_index(", fmt::format(", {})", size - 1), size);
  }
  if (parts.size() == 1) return part(parts[0].id, inner, is_inside ? Dim(1) : size);

  Level level = along.level();
  int64_t alignment = kWidestAccess;
  const std::string text = address(parts, inner, axis, inner[axis], origin, level, alignment);
  const Register chosen = define(level, true, "auto", text);
  const bool is_splat = place(parts[0].id, inner).lane_stride().is(0);
  const std::string load = is_splat ? "load_splat({})"
                           : dialect_ == Dialect::kCuda
                               ? fmt::format("load<{}>({{}}, live)", alignment)
                               : "load({}, live)";
  return define(level, is_splat, node.dtype, fmt::format(fmt::runtime(load), chosen.name));
}

Register ExpressionPrinter::concat(const Node& node, Indices at) {
  const auto axis = static_cast<size_t>(std::get<AxisAttr>(node.attr).axis);
  const Index& along = at[axis];
  const std::vector<Part> parts = reach(node, along);
  CHECK(!parts.empty(), "an index of a concat lies in one of its parts");
  const bool alike = choose_alike(along, parts);
  std::optional<Register> result;  // of the parts from here on
  for (size_t last = parts.size(), first = last; last > 0; last = first) {
    --first;
    if (alike && lies_in_memory(parts[first].id)) {
      const Dim stride = place(parts[first].id, at).lane_stride();
      if (is_read_at(parts[first], at, stride))
        while (first > 0 && is_read_at(parts[first - 1], at, stride)) --first;
    }
    const std::span run = std::span(parts).subspan(first, last - first);
    const Register x = read(node, run, at, alike);
    Condition before;
    before.require(along, "<", run.back().end, alike);
    result = result ? choose(node.dtype, before, x, *result) : x;
  }
  return *result;
}

std::vector<Index> ExpressionPrinter::gathered(const Node& node, Indices at) {
  const size_t index_rank = graph_.node(node.operands[1]).shape.size();
  const Register index = value(node.operands[1], at.first(index_rank));
  const Dim& rows = graph_.node(node.operands[0]).shape[0];
  LoopVar row{fresh(), index.splat ? LoopVar::Kind::kScalar : LoopVar::Kind::kLanes, index.level, 0,
              rows};
  emit(index.level,
       fmt::format("const {} {} = gather_row({}, {}){};", index.splat ? "index_t" : "vindex",
                   row.name, index.name, rows, index.splat ? "[0]" : ""));
  std::vector<Index> inner = {row};
  inner.insert(inner.end(), at.begin() + static_cast<std::ptrdiff_t>(index_rank), at.end());
  return inner;
}

Register ExpressionPrinter::gather(const Node& node, Indices at) {
  return value(node.operands[0], gathered(node, at));
}

std::optional<std::string> ExpressionPrinter::vector_address(NodeId id, Indices at, int64_t lanes) {
  const Node& node = graph_.node(id);
  if (node.op == Op::kGather) return vector_address(node.operands[0], gathered(node, at), lanes);
  if (lies_in_memory(id)) {
    const Index from = place(id, at);
    if (from.has_lanes() || !from.lane_stride().is(1) || from.alignment(lanes) != lanes)
      return std::nullopt;
    const NodeId source = node.op == Op::kView ? node.operands[0] : id;
    return fmt::format("{} + {}", buffers_.at(source).pointer, from.text());
  }
  if (node.op == Op::kView) return vector_address(node.operands[0], viewed(node, at), lanes);
  return std::nullopt;
}

}  // namespace kiln
