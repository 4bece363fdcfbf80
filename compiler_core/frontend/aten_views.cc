// Shapes: reshape, permute, slice, expand, concatenate.
#include <algorithm>
#include <numeric>

#include "compiler_core/frontend/decompositions.h"
#include "compiler_core/ir/affine.h"

namespace kiln {
namespace {

// `sizes` with a -1 replaced by what is left of `total`.
Shape complete_shape(Call& c, std::vector<Dim> sizes, const Dim& total) {
  Dim known = 1;
  Dim* unknown = nullptr;
  for (Dim& size : sizes) {
    if (!size.is(-1)) {
      known = known * size;
    } else if (unknown != nullptr) {
      c.invalid("only one size can be -1");
      return {};
    } else {
      unknown = &size;
    }
  }
  if (unknown == nullptr) return sizes;
  const Result<Dim> rest = known.is(0) || !known.is_valid()
                               ? Result<Dim>(fail(Code::kInvalidArgument, "no unique size for -1"))
                               : Dim::divide_exact(total, known);
  if (!rest)
    c.b.fail_with(rest.error());
  else
    *unknown = *rest;
  return sizes;
}

Values reshape_to(Call& c, std::string_view argument) {
  const NodeId x = c.tensor("self");
  const Shape shape = complete_shape(c, c.sizes(argument), numel(c.b.shape(x)));
  return {c.b.reshape(x, shape)};
}
Values view(Call& c) {
  return reshape_to(c, "size");
}
Values reshape(Call& c) {
  return reshape_to(c, "shape");
}
Values reshape_like(Call& c) {
  return {c.b.reshape(c.tensor("self"), c.b.shape(c.tensor("other")))};
}

Values flatten(Call& c) {
  const NodeId x = c.tensor("self");
  Shape shape = c.b.shape(x);
  const int start = c.axis("start_dim", shape.size(), 0), end = c.axis("end_dim", shape.size(), -1);
  if (!c.ok()) return {};
  if (shape.empty()) return {c.b.reshape(x, {1})};
  if (start > end) return {c.invalid("start_dim comes after end_dim")};
  const auto first = shape.begin() + start, last = shape.begin() + end + 1;
  const Dim merged = numel(Shape(first, last));
  *first = merged;
  shape.erase(first + 1, last);
  return {c.b.reshape(x, shape)};
}

Values unflatten(Call& c) {
  const NodeId x = c.tensor("self");
  Shape shape = c.b.shape(x);
  const int axis = c.axis("dim", shape.size());
  if (!c.ok() || shape.empty()) return {c.invalid("a scalar cannot be unflattened")};
  const Shape parts = complete_shape(c, c.sizes("sizes"), shape[at(axis)]);
  const auto place = shape.erase(shape.begin() + axis);
  shape.insert(place, parts.begin(), parts.end());
  return {c.b.reshape(x, shape)};
}

Values unsqueeze(Call& c) {
  const NodeId x = c.tensor("self");
  Shape shape = c.b.shape(x);
  const int axis = c.axis("dim", shape.size() + 1);
  shape.insert(shape.begin() + axis, 1);
  return {c.b.reshape(x, shape)};
}

NodeId squeeze_axes(Call& c, NodeId x, const std::vector<int>& axes) {
  if (!c.ok()) return kInvalidNode;
  Shape shape;
  for (size_t i = 0; i < c.b.shape(x).size(); ++i) {
    const bool chosen = std::find(axes.begin(), axes.end(), static_cast<int>(i)) != axes.end();
    if (!chosen || !c.b.shape(x)[i].is(1)) shape.push_back(c.b.shape(x)[i]);
  }
  return c.b.reshape(x, shape);
}
Values squeeze(Call& c) {
  const NodeId x = c.tensor("self");
  return {squeeze_axes(c, x, c.axes("dim", c.b.shape(x).size()))};
}

Values permute(Call& c) {
  const NodeId x = c.tensor("self");
  const int64_t rank = static_cast<int64_t>(c.b.shape(x).size());
  std::vector<int> axes;
  for (const Dim& dim : c.sizes("dims")) {
    const int64_t axis = dim.is_constant() ? dim.constant() : rank;
    if (axis < -rank || axis >= rank) return {c.invalid("permute names an axis that is not there")};
    axes.push_back(static_cast<int>(axis < 0 ? axis + rank : axis));
  }
  return {c.b.permute(x, axes)};
}
Values transpose(Call& c) {
  const NodeId x = c.tensor("self");
  const size_t rank = c.b.shape(x).size();
  const int first = c.axis("dim0", rank), second = c.axis("dim1", rank);
  return {c.ok() ? swap_axes(c.b, x, first, second) : kInvalidNode};
}
// swapaxes and swapdims name their axes otherwise.
template <int form>
Values transpose_axes(Call& c) {
  const NodeId x = c.tensor("self");
  const size_t rank = c.b.shape(x).size();
  const int first = c.axis(form == 0 ? "axis0" : "dim0", rank);
  const int second = c.axis(form == 0 ? "axis1" : "dim1", rank);
  return {c.ok() ? swap_axes(c.b, x, first, second) : kInvalidNode};
}
Values reverse_axes(Call& c) {
  const NodeId x = c.tensor("self");
  std::vector<int> axes(c.b.shape(x).size());
  std::iota(axes.rbegin(), axes.rend(), 0);
  return {c.b.permute(x, axes)};
}
Values ravel(Call& c) {
  const NodeId x = c.tensor("self");
  return {c.b.reshape(x, {numel(c.b.shape(x))})};
}
// t() of a matrix; vectors and scalars stay.
Values matrix_transpose(Call& c) {
  const NodeId x = c.tensor("self");
  const size_t rank = c.b.shape(x).size();
  if (rank > 2) return {c.invalid("t() of a tensor of rank " + std::to_string(rank))};
  return {rank == 2 ? swap_axes(c.b, x, 0, 1) : x};
}
Values last_transpose(Call& c) {
  const NodeId x = c.tensor("self");
  const int rank = static_cast<int>(c.b.shape(x).size());
  if (!c.ok() || rank < 2) return {c.invalid("mT of a tensor of rank " + std::to_string(rank))};
  return {swap_axes(c.b, x, rank - 2, rank - 1)};
}

// A tensor of one element as a number.
Values item(Call& c) {
  const NodeId x = c.tensor("self");
  if (!c.ok()) return {};
  if (!numel(c.b.shape(x)).is(1)) return {c.unsupported("of a tensor of more than one element")};
  return {c.b.reshape(x, {})};
}

Values expand_to(Call& c, Shape shape) {
  const NodeId x = c.tensor("self");
  const Shape& from = c.b.shape(x);
  if (!c.ok()) return {};
  if (shape.size() < from.size()) return {c.invalid("expand to fewer axes than there are")};
  const size_t lead = shape.size() - from.size();
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i].is(-1)) shape[i] = i < lead ? Dim(-1) : from[i - lead];
  return {c.b.broadcast(x, shape)};
}
Values expand(Call& c) {
  return expand_to(c, c.sizes("size"));
}
Values expand_as(Call& c) {
  return expand_to(c, c.b.shape(c.tensor("other")));
}

Values slice(Call& c) {
  const NodeId x = c.tensor("self");
  const Shape& shape = c.b.shape(x);
  const int axis = c.axis("dim", shape.size(), 0);
  if (!c.ok() || shape.empty()) return {c.invalid("a scalar cannot be sliced")};
  const Dim size = shape[at(axis)];
  const Dim start = slice_bound(c, c.size("start", Dim(0)), size);
  const Dim end = slice_bound(c, c.size("end", Dim(INT64_MAX)), size);
  const int64_t step = c.integer("step", 1);
  if (!c.ok()) return {};
  if (step < 1) return {c.invalid("the step of a slice is not positive")};
  Dim count = end - start;
  if (count.is_constant()) {
    const int64_t span = std::max<int64_t>(count.constant(), 0);
    count = span / step + (span % step != 0 ? 1 : 0);
  } else if (step != 1) {
    return {c.unsupported("a slice of symbolic size with a step is not covered")};
  }
  return {c.b.slice(x, axis, start, count, step)};
}

// The argument where it is a number that the program computes while it runs, as an i64 scalar; no
// node where it is known.
NodeId computed(Call& c, std::string_view name) {
  const NodeId id = c.operand(name).id;
  if (id == kInvalidNode || !c.ok()) return kInvalidNode;
  if (!numel(c.b.shape(id)).is(1) || is_float(c.b.dtype(id)))
    return c.invalid("argument '" + std::string(name) + "' is no integer");
  return c.b.cast(c.b.reshape(id, {}), DType::kI64);
}

NodeId select_index(Call& c, NodeId x, int axis, const Dim& index) {
  Shape shape = c.b.shape(x);
  const NodeId one = c.b.slice(x, axis, index, 1);
  shape.erase(shape.begin() + axis);
  return c.b.reshape(one, shape);
}
Values select(Call& c) {
  const NodeId x = c.tensor("self");
  const Shape& shape = c.b.shape(x);
  const int axis = c.axis("dim", shape.size());
  if (!c.ok() || shape.empty()) return {c.invalid("a scalar has no elements to select")};
  if (const NodeId place = computed(c, "index"); place != kInvalidNode)
    return {gather_axis(c.b, x, axis, place)};
  Dim index = c.size("index");
  if (index.is_constant() && index.constant() < 0) index = index + shape[at(axis)];
  return {select_index(c, x, axis, index)};
}
Values narrow(Call& c) {
  const NodeId x = c.tensor("self");
  const int axis = c.axis("dim", c.b.shape(x).size());
  const Dim length = c.size("length");
  const NodeId start = computed(c, "start");
  if (!c.ok() || c.b.shape(x).empty()) return {c.invalid("a scalar has no elements to narrow")};
  if (start == kInvalidNode) return {c.b.slice(x, axis, c.size("start"), length)};
  const NodeId places =
      c.b.binary(Op::kAdd, c.b.broadcast(start, {length}), c.b.iota(DType::kI64, length));
  return {gather_axis(c.b, x, axis, places)};
}

// The bound of a list of outputs; an archive may claim any.
constexpr int64_t kMaxPieces = 1 << 16;

Values split_sizes(Call& c, NodeId x, int axis, const std::vector<Dim>& sizes) {
  Values pieces;
  Dim start = 0;
  for (const Dim& size : sizes) {
    if (!c.ok()) return {};
    pieces.push_back(c.b.slice(x, axis, start, size));
    start = start + size;
  }
  if (c.ok() && start != c.b.shape(x)[at(axis)])
    return {c.invalid("the pieces of a split do not add up")};
  return pieces;
}
// Parts of `size`, the last of the rest.
Values split_evenly(Call& c, NodeId x, int axis, int64_t size) {
  const Shape& shape = c.b.shape(x);
  if (!c.ok() || shape.empty()) return {c.invalid("a scalar cannot be split")};
  if (!shape[at(axis)].is_constant())
    return {c.unsupported("a split of a symbolic size is not covered")};
  const int64_t total = shape[at(axis)].constant();
  if (size < 1 || total / size > kMaxPieces) return {c.invalid("a split into too many pieces")};
  std::vector<Dim> sizes;
  for (int64_t start = 0; start < total; start += size)
    sizes.emplace_back(std::min(size, total - start));
  if (sizes.empty()) sizes.emplace_back(0);
  return split_sizes(c, x, axis, sizes);
}
Values split(Call& c) {
  const NodeId x = c.tensor("self");
  const int axis = c.axis("dim", c.b.shape(x).size(), 0);
  return split_evenly(c, x, axis, c.integer("split_size"));
}
Values chunk(Call& c) {
  const NodeId x = c.tensor("self");
  const Shape& shape = c.b.shape(x);
  const int axis = c.axis("dim", shape.size(), 0);
  const int64_t chunks = c.integer("chunks");
  if (!c.ok() || shape.empty() || chunks < 1) return {c.invalid("a chunk of no size")};
  const Dim& total = shape[at(axis)];
  const int64_t size = total.is_constant() ? (total.constant() - 1) / chunks + 1 : 1;
  return split_evenly(c, x, axis, std::max<int64_t>(size, 1));
}
Values split_with_sizes(Call& c) {
  const NodeId x = c.tensor("self");
  const int axis = c.axis("dim", c.b.shape(x).size(), 0);
  const std::vector<Dim> sizes = c.sizes(c.has("split_sizes") ? "split_sizes" : "split_size");
  if (!c.ok() || c.b.shape(x).empty()) return {c.invalid("a scalar cannot be split")};
  return split_sizes(c, x, axis, sizes);
}
Values unbind(Call& c) {
  const NodeId x = c.tensor("self");
  const Shape& shape = c.b.shape(x);
  const int axis = c.axis("dim", shape.size(), 0);
  if (!c.ok() || shape.empty()) return {c.invalid("a scalar cannot be unbound")};
  if (!shape[at(axis)].is_constant() || shape[at(axis)].constant() > kMaxPieces)
    return {c.unsupported("unbind of a symbolic or very large size is not covered")};
  const int64_t total = shape[at(axis)].constant();
  Values pieces;
  for (int64_t i = 0; i < total && c.ok(); ++i) pieces.push_back(select_index(c, x, axis, i));
  return pieces;
}

// All of the dtype they promote to.
std::vector<NodeId> promoted_tensors(Call& c) {
  std::vector<NodeId> xs = c.tensors("tensors");
  if (!c.ok()) return {};
  std::vector<Operand> operands;
  for (NodeId x : xs) operands.push_back({x, {}});
  const DType type = result_type(c.b, operands);
  for (NodeId& x : xs) x = c.b.cast(x, type);
  if (xs.empty()) c.invalid("an empty list of tensors");
  return xs;
}
Values cat(Call& c) {
  std::vector<NodeId> xs = promoted_tensors(c);
  // An old rule: empty vectors count for nothing, whatever the others' rank.
  const auto is_nothing = [&](NodeId x) { return c.b.shape(x) == Shape{Dim(0)}; };
  if (!std::all_of(xs.begin(), xs.end(), is_nothing)) std::erase_if(xs, is_nothing);
  if (!c.ok()) return {};
  return {c.b.concat(xs, c.axis("dim", c.b.shape(xs[0]).size(), 0))};
}
Values stack(Call& c) {
  std::vector<NodeId> xs = promoted_tensors(c);
  if (!c.ok()) return {};
  const int axis = c.axis("dim", c.b.shape(xs[0]).size() + 1, 0);
  for (NodeId& x : xs) {
    Shape shape = c.b.shape(x);
    if (!c.ok() || at(axis) > shape.size()) return {c.invalid("a stack of different ranks")};
    shape.insert(shape.begin() + axis, 1);
    x = c.b.reshape(x, shape);
  }
  return {c.b.concat(xs, axis)};
}

Values flip(Call& c) {
  NodeId x = c.tensor("self");
  const Shape shape = c.b.shape(x);
  if (c.sizes("dims").empty()) return {x};
  for (int axis : c.axes("dims", shape.size()))
    if (!shape[at(axis)].is(0))
      x = c.b.slice(x, axis, shape[at(axis)] - Dim(1), shape[at(axis)], -1);
  return {x};
}

// Each axis becomes (repeats, size), and the two one axis.
NodeId repeated(Call& c, NodeId x, std::vector<Dim> repeats) {
  Shape shape = c.b.shape(x);
  if (!c.ok()) return kInvalidNode;
  if (repeats.size() < shape.size()) return c.invalid("fewer repeats than axes");
  shape.insert(shape.begin(), repeats.size() - shape.size(), Dim(1));
  Shape separate, spread, merged;
  for (size_t i = 0; i < shape.size(); ++i) {
    separate.insert(separate.end(), {Dim(1), shape[i]});
    spread.insert(spread.end(), {repeats[i], shape[i]});
    merged.push_back(repeats[i] * shape[i]);
  }
  return c.b.reshape(c.b.broadcast(c.b.reshape(x, separate), spread), merged);
}
Values repeat(Call& c) {
  const NodeId x = c.tensor("self");
  return {repeated(c, x, c.sizes("repeats"))};
}
// Missing repeats in front are 1.
Values tile(Call& c) {
  const NodeId x = c.tensor("self");
  std::vector<Dim> repeats = c.sizes("dims");
  const size_t rank = c.b.shape(x).size();
  if (repeats.size() < rank) repeats.insert(repeats.begin(), rank - repeats.size(), Dim(1));
  return {repeated(c, x, std::move(repeats))};
}

// A negative pad crops.
Values constant_pad(Call& c) {
  NodeId x = c.tensor("self");
  const std::vector<Dim> pads = c.sizes("pad");
  const Number value = c.has("value") ? c.number("value") : to_number(int64_t{0});
  const size_t rank = c.b.shape(x).size();
  if (!c.ok()) return {};
  if (pads.size() % 2 != 0 || pads.size() / 2 > rank) return {c.invalid("pads do not fit")};
  std::vector<Dim> low(rank, Dim(0)), high(rank, Dim(0));
  for (size_t i = 0; i < pads.size() / 2; ++i) {
    const size_t axis = rank - 1 - i;
    low[axis] = pads[2 * i];
    high[axis] = pads[2 * i + 1];
    Dim start = 0, size = c.b.shape(x)[axis];
    for (Dim* pad : {&low[axis], &high[axis]}) {
      if (lower_bound(*pad, c.symbols()) >= 0) continue;
      if (!pad->is_constant()) return {c.unsupported("a pad of symbolic size is not covered")};
      size = size + *pad;
      if (pad == &low[axis]) start = Dim(0) - *pad;
      *pad = 0;
    }
    if (size != c.b.shape(x)[axis]) x = c.b.slice(x, static_cast<int>(axis), start, size);
  }
  const NodeId fill = scalar(c.b, c.b.dtype(x), value);
  if (!c.ok()) return {};
  const ConstantAttr bits = std::get<ConstantAttr>(c.b.node(fill).attr);
  const auto is_zero = [](const Dim& dim) { return dim.is(0); };
  if (std::all_of(low.begin(), low.end(), is_zero) &&
      std::all_of(high.begin(), high.end(), is_zero))
    return {x};
  return {c.b.pad(x, std::move(low), std::move(high), bits)};
}

constexpr Lowering kViewLowerings[] = {
    {"aten.view.default", view},
    {"aten._unsafe_view.default", view},
    {"aten.reshape.default", reshape},
    {"aten.view_as.default", reshape_like},
    {"aten.reshape_as.default", reshape_like},
    {"aten.flatten.using_ints", flatten},
    {"aten.unflatten.int", unflatten},
    {"aten.unsqueeze.default", unsqueeze},
    {"aten.squeeze.default", squeeze},
    {"aten.squeeze.dim", squeeze},
    {"aten.squeeze.dims", squeeze},
    {"aten.permute.default", permute},
    {"aten.transpose.int", transpose},
    {"aten.t.default", matrix_transpose},
    {"aten.mT.default", last_transpose},
    {"aten.mH.default", last_transpose},
    {"aten.item.default", item},
    {"aten._local_scalar_dense.default", item},
    {"aten.expand.default", expand},
    {"aten.broadcast_to.default", expand},
    {"aten.expand_as.default", expand_as},
    {"aten.slice.Tensor", slice},
    {"aten.select.int", select},
    {"aten.narrow.default", narrow},
    {"aten.narrow_copy.default", narrow},
    {"aten.view_copy.default", view},
    {"aten._reshape_alias.default", view},
    {"aten._reshape_copy.default", view},
    {"aten.permute_copy.default", permute},
    {"aten.transpose_copy.int", transpose},
    {"aten.t_copy.default", matrix_transpose},
    {"aten.expand_copy.default", expand},
    {"aten.slice_copy.Tensor", slice},
    {"aten.select_copy.int", select},
    {"aten.unsqueeze_copy.default", unsqueeze},
    {"aten.squeeze_copy.default", squeeze},
    {"aten.squeeze_copy.dim", squeeze},
    {"aten.squeeze_copy.dims", squeeze},
    {"aten.split_copy.Tensor", split},
    {"aten.split_with_sizes_copy.default", split_with_sizes},
    {"aten.unbind_copy.int", unbind},
    {"aten.unsafe_split.Tensor", split},
    {"aten.unsafe_split_with_sizes.default", split_with_sizes},
    {"aten.unsafe_chunk.default", chunk},
    {"aten.swapaxes.default", transpose_axes<0>},
    {"aten.swapdims.default", transpose_axes<1>},
    {"aten.adjoint.default", last_transpose},
    {"aten.numpy_T.default", reverse_axes},
    {"aten.ravel.default", ravel},
    {"aten.tile.default", tile},
    {"aten.split.Tensor", split},
    {"aten.split.sizes", split_with_sizes},
    {"aten.split_with_sizes.default", split_with_sizes},
    {"aten.chunk.default", chunk},
    {"aten.unbind.int", unbind},
    {"aten.cat.default", cat},
    {"aten.concat.default", cat},
    {"aten.concatenate.default", cat},
    {"aten.stack.default", stack},
    {"aten.flip.default", flip},
    {"aten.repeat.default", repeat},
    {"aten.constant_pad_nd.default", constant_pad},
};

}  // namespace

std::span<const Lowering> view_lowerings() {
  return kViewLowerings;
}

}  // namespace kiln
