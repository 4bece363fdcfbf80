// Views and rearrangements: what changes where elements lie, and none of them.
#include <algorithm>
#include <numeric>

#include "compiler_core/frontend/onnx/call.h"

namespace kiln {
namespace {

// 0 keeps the size of x, unless allowzero says that it is a size; -1 is what remains.
Values reshape(OnnxCall& c) {
  const Expr x = c.tensor(0);
  std::vector<Dim> sizes = c.sizes(1, "shape");
  if (!c.ok()) return {};
  const Shape from = x.shape();
  const bool zero_is_size = c.flag("allowzero", false);
  size_t open = sizes.size();
  Dim known = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].is(0) && !zero_is_size) {
      if (i >= from.size()) return {c.invalid("keeps the size of an axis that is not there")};
      sizes[i] = from[i];
    }
    if (!sizes[i].is(-1)) {
      known = known * sizes[i];
    } else if (open != sizes.size()) {
      return {c.invalid("the shape leaves two sizes open")};
    } else {
      open = i;
    }
  }
  if (open != sizes.size()) {
    const auto rest = known.is(0) ? Result<Dim>(Dim(0)) : Dim::divide_exact(numel(from), known);
    if (!rest)
      return {c.invalid("a tensor " + to_string(from) + " has no shape " + to_string(sizes))};
    sizes[open] = *rest;
  }
  return {x.reshape(sizes).id};
}

Values flatten(OnnxCall& c) {
  const Expr x = c.tensor(0);
  if (!c.ok()) return {};
  const Shape shape = x.shape();
  const int64_t rank = static_cast<int64_t>(shape.size());
  int64_t axis = c.integer("axis", 1);
  if (axis < -rank || axis > rank) return {c.invalid("there is no such axis")};
  if (axis < 0) axis += rank;
  const Shape before(shape.begin(), shape.begin() + axis), after(shape.begin() + axis, shape.end());
  return {x.reshape({numel(before), numel(after)}).id};
}

Values transpose(OnnxCall& c) {
  const Expr x = c.tensor(0);
  if (!c.ok()) return {};
  const size_t rank = x.shape().size();
  std::vector<int> order(rank);
  std::iota(order.rbegin(), order.rend(), 0);
  if (const auto given = c.list("perm")) {
    std::vector<int64_t> sorted = *given;
    std::sort(sorted.begin(), sorted.end());
    bool is_permutation = sorted.size() == rank;
    for (size_t i = 0; is_permutation && i < rank; ++i)
      is_permutation = sorted[i] == static_cast<int64_t>(i);
    if (!is_permutation) return {c.invalid("attribute 'perm' is no order of the axes")};
    order.assign(given->begin(), given->end());
  }
  return {c.b.permute(x.id, order)};
}

// Axes are an attribute in old opsets and an operand since 13.
std::optional<std::vector<int64_t>> given_axes(OnnxCall& c) {
  if (c.has(1)) return c.integers(1, "list of axes");
  return c.list("axes");
}

Values squeeze(OnnxCall& c) {
  const Expr x = c.tensor(0);
  if (!c.ok()) return {};
  const Shape shape = x.shape();
  const auto given = given_axes(c);
  std::vector<int> axes;
  if (given) axes = c.axes(*given, shape.size());
  Shape rest;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool named = std::find(axes.begin(), axes.end(), static_cast<int>(i)) != axes.end();
    if (named && !shape[i].is(1))
      return {c.invalid("axis " + std::to_string(i) + " of " + to_string(shape) + " is not 1")};
    if (!(given ? named : shape[i].is(1))) rest.push_back(shape[i]);
  }
  return {x.reshape(rest).id};
}

Values unsqueeze(OnnxCall& c) {
  const Expr x = c.tensor(0);
  const auto given = given_axes(c);
  if (!c.ok()) return {};
  if (!given || given->size() > kMostOnnxRank) return {c.invalid("needs axes")};
  Shape shape = x.shape();
  for (const int axis : c.axes(*given, shape.size() + given->size()))
    shape.insert(shape.begin() + std::min<std::ptrdiff_t>(axis, std::ssize(shape)), 1);
  return {c.ok() ? x.reshape(shape).id : kInvalidNode};
}

Values concat(OnnxCall& c) {
  std::vector<NodeId> xs;
  for (size_t i = 0; i < c.input_count(); ++i) xs.push_back(c.tensor(i).id);
  c.required_integer("axis");
  if (!c.ok() || xs.empty()) return {c.invalid("needs an operand")};
  return {c.b.concat(xs, c.axis(c.integer("axis", 0), c.b.shape(xs[0]).size()))};
}

// Sizes of the parts: given, or equal but for the last.
std::vector<Dim> parts_of(OnnxCall& c, const Dim& size) {
  if (c.has(1)) return c.sizes(1, "list of sizes");
  if (const auto given = c.list("split")) return {given->begin(), given->end()};
  const int64_t count = c.integer("num_outputs", static_cast<int64_t>(c.output_count()));
  if (count < 1 || count > static_cast<int64_t>(kMostOnnxValues)) {
    c.invalid("has no parts");
    return {};
  }
  if (!size.is_constant()) {
    const auto part = Dim::divide_exact(size, count);
    if (!part) c.unsupported("a dynamic size that its parts do not divide is not covered");
    return std::vector<Dim>(static_cast<size_t>(count), part.value_or(0));
  }
  const int64_t part = (size.constant() + count - 1) / count;
  std::vector<Dim> parts;
  for (int64_t i = 0, rest = size.constant(); i < count; ++i) {
    parts.emplace_back(std::min(part, rest));
    rest -= std::min(part, rest);
  }
  return parts;
}

Values split(OnnxCall& c) {
  const Expr x = c.tensor(0);
  if (!c.ok()) return {};
  const Shape shape = x.shape();
  const int axis = c.axis(c.integer("axis", 0), shape.size());
  if (!c.ok()) return {};
  const Dim& size = shape[static_cast<size_t>(axis)];
  const std::vector<Dim> parts = parts_of(c, size);
  Values values;
  Dim start = 0;
  for (const Dim& part : parts) {
    if (!c.is_never_negative(part)) return {c.invalid("a part has a negative size")};
    values.push_back(c.b.slice(x.id, axis, start, part));
    start = start + part;
  }
  if (c.ok() && start != size)
    return {c.invalid("the parts have " + start.to_string() + " of " + size.to_string())};
  return values;
}

// A slice with a negative step, over a constant size.
Expr slice_backwards(OnnxCall& c, Expr x, int axis, const Dim& start, const Dim& end,
                     int64_t step) {
  const Dim size = x.shape()[static_cast<size_t>(axis)];
  if (start.is_constant() && start.constant() >= INT32_MAX && end.is_constant() &&
      end.constant() <= -INT32_MAX && step == -1)
    return {&c.b, c.b.slice(x.id, axis, size - Dim(1), size, -1)};  // all of it
  if (!size.is_constant() || !start.is_constant() || !end.is_constant() || step < -INT32_MAX) {
    c.unsupported("a slice backwards of a dynamic size is not covered");
    return x;
  }
  const int64_t n = size.constant();
  const auto clamped = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? std::max(at, -n - 1) + n : at, -1, n - 1);
  };
  const int64_t first = clamped(start.constant()), last = clamped(end.constant());
  const int64_t count = first > last ? (first - last - step - 1) / -step : 0;
  return {&c.b, c.b.slice(x.id, axis, count == 0 ? 0 : first, count, step)};
}

Values slice(OnnxCall& c) {
  Expr x = c.tensor(0);
  const std::vector<Dim> starts = c.sizes(1, "list of starts"), ends = c.sizes(2, "list of ends");
  if (!c.ok()) return {};
  std::vector<int64_t> axes(starts.size()), steps(starts.size(), 1);
  std::iota(axes.begin(), axes.end(), 0);
  if (c.has(3)) axes = c.integers(3, "list of axes");
  if (c.has(4)) steps = c.integers(4, "list of steps");
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    return {c.invalid("needs as many starts, ends, axes and steps")};
  const size_t rank = x.shape().size();
  for (size_t i = 0; i < starts.size() && c.ok(); ++i) {
    const int axis = c.axis(axes[i], rank);
    if (steps[i] == 0) return {c.invalid("a step is 0")};
    if (!c.ok()) return {};
    // Exporters write the largest number of any type for "to the end".
    const bool to_end = ends[i].is_constant() && ends[i].constant() >= INT32_MAX;
    if (steps[i] > 0 && !to_end) c.keep_within(ends[i], x.shape()[static_cast<size_t>(axis)]);
    x = steps[i] < 0 ? slice_backwards(c, x, axis, starts[i], ends[i], steps[i])
                     : c.aten("aten.slice.Tensor", {{"self", x},
                                                    {"dim", axis},
                                                    {"start", starts[i]},
                                                    {"end", to_end ? Dim(INT64_MAX) : ends[i]},
                                                    {"step", steps[i]}});
  }
  return {x.id};
}

Values expand(OnnxCall& c) {
  const Expr x = c.tensor(0);
  const std::vector<Dim> sizes = c.sizes(1, "shape");
  if (!c.ok()) return {};
  return {x.broadcast(broadcast_shapes(c.b, x.shape(), sizes)).id};
}

Values tile(OnnxCall& c) {
  const Expr x = c.tensor(0);
  const std::vector<Dim> repeats = c.sizes(1, "list of repeats");
  if (!c.ok()) return {};
  if (repeats.size() != x.shape().size()) return {c.invalid("needs a number for each axis")};
  return {c.aten("aten.repeat.default", {{"self", x}, {"repeats", repeats}}).id};
}

// Widths as ATen has them, of the last axis first.
struct Pads {
  std::vector<Dim> widths;
  bool any_negative = false;
};
Pads read_pads(OnnxCall& c, size_t rank) {
  const std::vector<int64_t> given = c.integers(1, "list of pads");
  std::vector<int64_t> named(rank);
  std::iota(named.begin(), named.end(), 0);
  if (c.has(3)) named = c.integers(3, "list of axes");
  Pads pads{std::vector<Dim>(2 * rank, 0), false};
  if (!c.ok() || given.size() != 2 * named.size()) {
    c.invalid("needs a pad before and behind each axis");
    return pads;
  }
  for (size_t i = 0; i < named.size(); ++i) {
    const size_t axis = static_cast<size_t>(c.axis(named[i], rank));
    if (!c.ok()) return pads;
    pads.widths[2 * (rank - 1 - axis)] = given[i];
    pads.widths[2 * (rank - 1 - axis) + 1] = given[i + named.size()];
    pads.any_negative = pads.any_negative || given[i] < 0 || given[i + named.size()] < 0;
  }
  return pads;
}

Values pad(OnnxCall& c) {
  const Expr x = c.tensor(0);
  if (!c.ok()) return {};
  const size_t rank = x.shape().size();
  Pads pads = read_pads(c, rank);
  const std::string_view mode = c.text("mode", "constant");
  if (!c.ok()) return {};
  if (mode == "constant") {
    const std::optional<double> value = c.has(2) ? c.number(2) : 0;
    if (!value)
      return {c.unsupported("a constant_value that is computed from data is not covered")};
    return {c.aten("aten.constant_pad_nd.default",
                   {{"self", x}, {"pad", pads.widths}, {"value", *value}})
                .id};
  }
  const std::string_view aten = mode == "reflect" ? "reflect"
                                : mode == "edge"  ? "replicate"
                                : mode == "wrap"  ? "circular"
                                                  : "";
  if (aten.empty())
    return {c.invalid("there is no mode '" + std::string(mode.substr(0, 40)) + "'")};
  // Axes in front that are not padded are none of ATen's.
  while (pads.widths.size() > 2 && pads.widths[pads.widths.size() - 1].is(0) &&
         pads.widths[pads.widths.size() - 2].is(0))
    pads.widths.resize(pads.widths.size() - 2);
  return {c.aten("aten.pad.default", {{"self", x}, {"pad", pads.widths}, {"mode", aten}}).id};
}

// [n, c, h, w] -> [n, c / (k * k), h * k, w * k]; DCR takes the block's axes first, CRD last.
Values depth_to_space(OnnxCall& c) {
  const Expr x = c.tensor(0);
  const int64_t k = c.required_integer("blocksize");
  const std::string_view mode = c.text("mode", "DCR");
  if (!c.ok()) return {};
  const Shape s = x.shape();
  if (s.size() != 4 || k < 1 || k > 1 << 15) return {c.invalid("needs images and a blocksize")};
  const auto depth = Dim::divide_exact(s[1], k * k);
  if (!depth) return {c.invalid("the channels do not divide into blocks")};
  const bool columns_first = mode == "CRD";
  const Expr split = columns_first ? x.reshape({s[0], *depth, k, k, s[2], s[3]})
                                   : x.reshape({s[0], k, k, *depth, s[2], s[3]});
  const NodeId order = columns_first ? c.b.permute(split.id, {0, 1, 4, 2, 5, 3})
                                     : c.b.permute(split.id, {0, 3, 4, 1, 5, 2});
  return {c.b.reshape(order, {s[0], *depth, s[2] * Dim(k), s[3] * Dim(k)})};
}

Values space_to_depth(OnnxCall& c) {
  const Expr x = c.tensor(0);
  const int64_t k = c.required_integer("blocksize");
  if (!c.ok()) return {};
  const Shape s = x.shape();
  if (s.size() != 4 || k < 1 || k > 1 << 15) return {c.invalid("needs images and a blocksize")};
  const auto rows = Dim::divide_exact(s[2], k), columns = Dim::divide_exact(s[3], k);
  if (!rows || !columns) return {c.invalid("the image does not divide into blocks")};
  const Expr split = x.reshape({s[0], s[1], *rows, k, *columns, k});
  return {c.b.reshape(c.b.permute(split.id, {0, 3, 5, 1, 2, 4}),
                      {s[0], s[1] * Dim(k * k), *rows, *columns})};
}

Values triangle(OnnxCall& c) {
  const Expr x = c.tensor(0);
  int64_t diagonal = 0;
  if (c.has(1)) {
    const std::vector<int64_t> k = c.integers(1, "number k");
    if (!c.ok() || k.size() != 1) return {c.invalid("needs one number k")};
    diagonal = k[0];
  }
  return {c.aten(c.flag("upper", true) ? "aten.triu.default" : "aten.tril.default",
                 {{"self", x}, {"diagonal", diagonal}})
              .id};
}

constexpr OnnxLowering kOnnxViewLowerings[] = {
    {"Reshape", reshape},
    {"Flatten", flatten},
    {"Transpose", transpose},
    {"Squeeze", squeeze},
    {"Unsqueeze", unsqueeze},
    {"Concat", concat},
    {"Split", split},
    {"Slice", slice},
    {"Expand", expand},
    {"Tile", tile},
    {"Pad", pad},
    {"DepthToSpace", depth_to_space},
    {"Trilu", triangle},
    {"SpaceToDepth", space_to_depth},
};

}  // namespace

std::span<const OnnxLowering> onnx_view_lowerings() {
  return kOnnxViewLowerings;
}

}  // namespace kiln
