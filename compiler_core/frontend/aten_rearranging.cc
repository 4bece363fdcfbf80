// Elements in other places: diagonals, rolls, windows, turns, pixel shuffles.
#include <algorithm>
#include <numeric>

#include "compiler_core/frontend/decompositions.h"
#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

Values diagonal(Call& c) {
  const NodeId x = c.tensor("self");
  const size_t rank = c.b.shape(x).size();
  const int first = c.axis("dim1", rank, 0), second = c.axis("dim2", rank, 1);
  return {diagonal_of(c, x, c.integer("offset", 0), first, second)};
}
Values trace(Call& c) {
  const NodeId x = c.tensor("self");
  const Expr line{&c.b, diagonal_of(c, x, 0, 0, 1)};
  if (!c.ok() || c.b.shape(x).size() != 2) return {c.invalid("the trace of what is no matrix")};
  const DType type = is_float(line.dtype()) ? line.dtype() : DType::kI64;
  return {line.cast(compute_type(type)).sum({0}, false).cast(type).id};
}

// A matrix (of the last axis) with x on a diagonal, its two axes at dim1 and dim2.
NodeId embed_diagonal(Call& c, NodeId x, int64_t offset, int first, int second) {
  GraphBuilder& b = c.b;
  if (!c.ok() || b.shape(x).empty()) return c.invalid("a diagonal of a scalar");
  Shape shape = b.shape(x);
  const Dim length = shape.back(), size = length + Dim(offset < 0 ? -offset : offset);
  shape.back() = size;
  shape.push_back(size);
  const Expr row{&b, coordinate(b, shape, shape.size() - 2)};
  const Expr column{&b, coordinate(b, shape, shape.size() - 1)};
  const Expr here = column - row == static_cast<double>(offset);
  // Along the diagonal the element is that of the smaller coordinate.
  Shape wide = shape;
  const bool by_row = offset >= 0;
  Shape line = b.shape(x);
  line.insert(by_row ? line.end() : line.end() - 1, Dim(1));
  const int axis = static_cast<int>(shape.size()) - (by_row ? 2 : 1);
  NodeId padded = b.reshape(x, line);
  if (offset != 0) {
    std::vector<Dim> low(shape.size(), Dim(0)), high = low;
    high[at(axis)] = size - length;
    padded = b.pad(padded, low, high, constant_bits(b.dtype(x), 0));
  }
  const Expr value = Expr{&b, padded}.broadcast(wide);
  const NodeId result = choose(here, value, 0).id;
  // The two new axes, which stand last, go where they belong.
  std::vector<int> order(shape.size(), -1);
  order[at(first)] = static_cast<int>(shape.size()) - 2;
  order[at(second)] = static_cast<int>(shape.size()) - 1;
  int next = 0;
  for (int& each : order)
    if (each < 0) each = next++;
  return b.permute(result, order);
}
Values diag_embed(Call& c) {
  const NodeId x = c.tensor("self");
  const size_t rank = c.b.shape(x).size() + 1;
  const int first = c.axis("dim1", rank, -2), second = c.axis("dim2", rank, -1);
  if (first == second) return {c.invalid("a diagonal needs two different axes")};
  return {embed_diagonal(c, x, c.integer("offset", 0), first, second)};
}
Values diag(Call& c) {
  const NodeId x = c.tensor("self");
  const int64_t offset = c.integer("diagonal", 0);
  if (c.b.shape(x).size() == 1) return {embed_diagonal(c, x, offset, 0, 1)};
  return {diagonal_of(c, x, offset, 0, 1)};
}

// Any strides into the storage: one View of the tensor, where that is all of it, row by row.
Values as_strided(Call& c) {
  const NodeId x = c.tensor("self");
  if (!c.lies_row_by_row("self"))
    return {c.unsupported("as_strided of a tensor that does not lie row by row is not covered")};
  return {c.b.view(x, c.sizes("size"), c.sizes("stride"), c.size("storage_offset", Dim(0)))};
}

NodeId rolled(Call& c, NodeId x, int axis, int64_t by) {
  GraphBuilder& b = c.b;
  const Dim size = b.shape(x)[at(axis)];
  if (size.is(0)) return x;
  if (size.is_constant()) by = ((by % size.constant()) + size.constant()) % size.constant();
  if (by == 0 || !c.ok()) return x;
  // For a symbolic size: towards the end for a positive shift, and the other way round.
  const Dim cut = by > 0 ? size - Dim(by) : Dim(-by);
  const NodeId pieces[] = {b.slice(x, axis, cut, size - cut), b.slice(x, axis, 0, cut)};
  return b.concat(pieces, axis);
}
Values roll(Call& c) {
  GraphBuilder& b = c.b;
  NodeId x = c.tensor("self");
  const Shape shape = b.shape(x);
  const std::vector<Dim> shifts = c.sizes("shifts");
  const std::vector<Dim> dims = c.has("dims") ? c.sizes("dims") : std::vector<Dim>();
  for (const Dim& shift : shifts)
    if (!shift.is_constant()) return {c.unsupported("a roll by a symbolic size is not covered")};
  if (!c.ok()) return {};
  if (dims.empty()) {
    if (shifts.size() != 1) return {c.invalid("roll needs one shift without axes")};
    return {b.reshape(rolled(c, b.reshape(x, {numel(shape)}), 0, shifts[0].constant()), shape)};
  }
  if (shifts.size() != dims.size()) return {c.invalid("roll needs one shift for each axis")};
  const int64_t rank = static_cast<int64_t>(shape.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = dims[i].is_constant() ? dims[i].constant() : rank;
    if (dim < -rank || dim >= rank) return {c.invalid("roll names an axis that is not there")};
    x = rolled(c, x, static_cast<int>(dim < 0 ? dim + rank : dim), shifts[i].constant());
  }
  return {x};
}

// fftshift (the middle comes first), ifftshift: along the axes given, or all.
template <bool back>
Values shifted(Call& c) {
  NodeId x = c.tensor("self");
  const Shape shape = c.b.shape(x);
  const std::vector<int> axes = c.axes("dim", shape.size());
  for (const int axis : axes) {
    if (!shape[at(axis)].is_constant())
      return {c.unsupported("a shift of an axis of symbolic size is not covered")};
    const int64_t size = shape[at(axis)].constant();
    x = rolled(c, x, axis, back ? (size + 1) / 2 : size / 2);
  }
  return {x};
}

// Each element `count` times in a row.
Values repeat_interleave(Call& c) {
  GraphBuilder& b = c.b;
  NodeId x = c.tensor("self");
  const Dim count = c.size("repeats");
  if (!c.has("dim")) x = b.reshape(x, {numel(b.shape(x))});
  const int axis = c.has("dim") ? c.axis("dim", b.shape(x).size()) : 0;
  Shape shape = b.shape(x);
  if (!c.ok() || shape.empty()) return {c.invalid("repeat_interleave of a scalar along an axis")};
  Shape separate = shape;
  separate.insert(separate.begin() + axis + 1, 1);
  Shape spread = separate;
  spread[at(axis) + 1] = count;
  shape[at(axis)] = shape[at(axis)] * count;
  return {b.reshape(b.broadcast(b.reshape(x, separate), spread), shape)};
}

Values movedim(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self");
  const size_t rank = b.shape(x).size();
  std::vector<int> source, target;
  if (c.is_list("source")) {
    source = c.listed_axes("source", rank);
    target = c.listed_axes("destination", rank);
  } else {
    source = {c.axis("source", rank)};
    target = {c.axis("destination", rank)};
  }
  if (!c.ok() || source.size() != target.size()) return {c.invalid("axes do not pair up")};
  std::vector<int> order(rank, -1), rest;
  for (size_t i = 0; i < source.size(); ++i) order[at(target[i])] = source[i];
  for (int axis = 0; axis < static_cast<int>(rank); ++axis)
    if (std::find(source.begin(), source.end(), axis) == source.end()) rest.push_back(axis);
  size_t next = 0;
  for (int& each : order)
    if (each < 0 && next < rest.size()) each = rest[next++];
  return {b.permute(x, order)};
}

// Windows of `size` along an axis, `step` apart, as a new last axis: one View.
Values unfold(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self");
  Shape shape = b.shape(x);
  const int axis = c.axis("dimension", shape.size());
  const int64_t size = c.integer("size"), step = c.integer("step");
  if (!c.ok() || shape.empty()) return {c.unsupported("unfold of a scalar is not covered")};
  const Dim length = shape[at(axis)];
  if (!length.is_constant() && step != 1)
    return {c.unsupported("unfold of a symbolic size with a step is not covered")};
  if (step < 1 || size < 0 || (length.is_constant() && size > length.constant()))
    return {c.invalid("a window larger than its axis")};
  std::vector<Dim> strides = contiguous_strides(shape);
  const Dim along = strides[at(axis)];
  shape[at(axis)] = step == 1 ? length - Dim(size - 1) : Dim((length.constant() - size) / step + 1);
  strides[at(axis)] = along * Dim(step);
  shape.emplace_back(size);
  strides.push_back(along);
  return {b.view(x, shape, strides, 0)};
}

// A quarter turn is a flip and a transposition.
Values rot90(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self");
  const int64_t turns = ((c.integer("k", 1) % 4) + 4) % 4;
  const std::vector<int> axes =
      c.has("dims") ? c.listed_axes("dims", b.shape(x).size()) : std::vector<int>{0, 1};
  if (!c.ok() || b.shape(x).size() < 2 || axes.size() != 2 || axes[0] == axes[1])
    return {c.invalid("a turn needs two different axes")};
  const auto flipped = [&](NodeId y, int axis) {
    const Dim size = b.shape(y)[at(axis)];
    return size.is(0) ? y : b.slice(y, axis, size - Dim(1), size, -1);
  };
  if (turns == 0) return {x};
  if (turns == 2) return {flipped(flipped(x, axes[0]), axes[1])};
  return {swap_axes(b, flipped(x, axes[turns == 1 ? 1 : 0]), axes[0], axes[1])};
}

Values fill_diagonal(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self");
  const Number value = c.number("fill_value");
  const Shape shape = b.shape(x);
  if (!c.ok() || shape.size() != 2 || c.flag("wrap", false))
    return {
        c.unsupported("filling a diagonal of anything but a matrix, or with wrap, is not "
                      "covered")};
  const NodeId here = b.binary(Op::kEq, coordinate(b, shape, 0), coordinate(b, shape, 1));
  return {b.select(here, b.broadcast(scalar(b, b.dtype(x), value), shape), x)};
}

// [.., c*r*r, h, w] -> [.., c, h*r, w*r], and back.
Values pixel_shuffle(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self");
  const int64_t r = c.integer("upscale_factor");
  const Shape shape = b.shape(x);
  if (!c.ok() || shape.size() < 3 || r < 1) return {c.invalid("pixel_shuffle needs an image")};
  const Shape lead(shape.begin(), shape.end() - 3);
  const Dim n = numel(lead);
  const Dim &h = shape[shape.size() - 2], &w = shape.back();
  const Result<Dim> channels = Dim::divide_exact(shape[shape.size() - 3], Dim(r) * Dim(r));
  if (!channels) return {c.invalid("pixel_shuffle needs r * r times as many channels")};
  const NodeId parts = b.reshape(x, {n, *channels, r, r, h, w});
  Shape result = lead;
  result.insert(result.end(), {*channels, h * Dim(r), w * Dim(r)});
  return {b.reshape(b.permute(parts, {0, 1, 4, 2, 5, 3}), result)};
}
Values pixel_unshuffle(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self");
  const int64_t r = c.integer("downscale_factor");
  const Shape shape = b.shape(x);
  if (!c.ok() || shape.size() < 3 || r < 1) return {c.invalid("pixel_unshuffle needs an image")};
  const Shape lead(shape.begin(), shape.end() - 3);
  const Dim n = numel(lead);
  const Dim& channels = shape[shape.size() - 3];
  const Result<Dim> h = Dim::divide_exact(shape[shape.size() - 2], r);
  const Result<Dim> w = Dim::divide_exact(shape.back(), r);
  if (!h || !w) return {c.invalid("pixel_unshuffle needs a size that r divides")};
  const NodeId parts = b.reshape(x, {n, channels, *h, r, *w, r});
  Shape result = lead;
  result.insert(result.end(), {channels * Dim(r) * Dim(r), *h, *w});
  return {b.reshape(b.permute(parts, {0, 1, 3, 5, 2, 4}), result)};
}
Values channel_shuffle(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self");
  const Dim groups = c.size("groups");
  const Shape shape = b.shape(x);
  if (!c.ok() || shape.size() < 3) return {c.invalid("channel_shuffle needs channels")};
  const Result<Dim> each = Dim::divide_exact(shape[1], groups);
  if (!each) return {c.invalid("the channels do not divide into the groups")};
  const Dim rest = numel(Shape(shape.begin() + 2, shape.end()));
  const NodeId parts = b.reshape(x, {shape[0], groups, *each, rest});
  return {b.reshape(b.permute(parts, {0, 2, 1, 3}), shape)};
}

Values one_hot(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self");
  const int64_t classes = c.integer("num_classes", -1);
  if (classes < 1)
    return {
        c.unsupported("one_hot without num_classes has a shape that depends on the data; give it "
                      "num_classes")};
  Shape column = b.shape(x), shape = column;
  column.emplace_back(1);
  shape.emplace_back(classes);
  if (!c.ok()) return {};
  const Expr wanted = Expr{&b, x}.reshape(column);
  const Expr place{&b, b.cast(coordinate(b, shape, shape.size() - 1), b.dtype(x))};
  return {(place == wanted).cast(DType::kI64).id};
}

template <int axis>
Values flip_axis(Call& c) {
  const NodeId x = c.tensor("self");
  const Shape& shape = c.b.shape(x);
  if (!c.ok() || shape.size() <= axis) return {c.invalid("flip of an axis that is not there")};
  const Dim size = shape[axis];
  return {size.is(0) ? x : c.b.slice(x, axis, size - Dim(1), size, -1)};
}

// Row and column numbers of a triangle's elements, in row order. A row's elements start where the
// rows before it end.
template <bool lower>
Values triangle_indices(Call& c) {
  GraphBuilder& b = c.b;
  const int64_t rows = c.integer("row"), columns = c.integer("col"),
                offset = c.integer("offset", 0);
  const DType type = c.dtype("dtype", DType::kI64);
  constexpr int64_t kMost = 1 << 15;
  if (!c.ok() || rows < 0 || columns < 0 || rows > kMost || columns > kMost || offset < -kMost ||
      offset > kMost)
    return {c.unsupported("triangle indices of so large a matrix are not covered")};
  int64_t count = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t kept = std::clamp<int64_t>(r + offset + (lower ? 1 : 0), 0, columns);
    count += lower ? kept : columns - kept;
  }
  if (count == 0) return {b.cast(b.broadcast(b.constant_int(DType::kI64, 0), {2, 0}), type)};
  const Expr row{&b, b.iota(DType::kI64, rows)};
  const Expr edge = min(max(row + static_cast<double>(offset + (lower ? 1 : 0)), 0),
                        static_cast<double>(columns));
  const Expr width = lower ? edge : edge.like(static_cast<double>(columns)) - edge;
  const Expr start = Expr{&b, b.scan_sum(width.id, 0)} - width;
  const Expr element{&b, b.iota(DType::kI64, count)};
  // The last row that starts no later.
  const Expr begun = start.reshape({1, rows}) <= element.reshape({count, 1});
  const Expr at_row = begun.cast(DType::kI64).sum({1}, false) - 1;
  const Expr first{&b, b.gather(start.id, at_row.id)};
  Expr column = element - first;
  if (!lower) column = column + Expr{&b, b.gather(edge.id, at_row.id)};
  const NodeId both[] = {at_row.reshape({1, count}).id, column.reshape({1, count}).id};
  return {b.cast(b.concat(both, 0), type)};
}

constexpr Lowering kRearrangingLowerings[] = {
    {"aten.diagonal.default", diagonal},
    {"aten.diagonal_copy.default", diagonal},
    {"aten.trace.default", trace},
    {"aten.diag_embed.default", diag_embed},
    {"aten.diag.default", diag},
    {"aten.as_strided.default", as_strided},
    {"aten.as_strided_copy.default", as_strided},
    {"aten.roll.default", roll},
    {"aten.fft_fftshift.default", shifted<false>},
    {"aten.fft_ifftshift.default", shifted<true>},
    {"aten.repeat_interleave.self_int", repeat_interleave},
    {"aten.movedim.int", movedim},
    {"aten.movedim.intlist", movedim},
    {"aten.moveaxis.int", movedim},
    {"aten.moveaxis.intlist", movedim},
    {"aten.unfold.default", unfold},
    {"aten.unfold_copy.default", unfold},
    {"aten.pixel_shuffle.default", pixel_shuffle},
    {"aten.pixel_unshuffle.default", pixel_unshuffle},
    {"aten.channel_shuffle.default", channel_shuffle},
    {"aten.one_hot.default", one_hot},
    {"aten.fill_diagonal.default", fill_diagonal},
    {"aten.rot90.default", rot90},
    {"aten.fliplr.default", flip_axis<1>},
    {"aten.flipud.default", flip_axis<0>},
    {"aten.tril_indices.default", triangle_indices<true>},
    {"aten.triu_indices.default", triangle_indices<false>},
};

}  // namespace

std::span<const Lowering> rearranging_lowerings() {
  return kRearrangingLowerings;
}

}  // namespace kiln
