// Gathering and scattering by indices, which count from the end when negative.
#include <algorithm>

#include "compiler_core/frontend/onnx/call.h"

namespace kiln {
namespace {

// Negative indices along an axis of `size`, from the front.
Expr from_front(OnnxCall& c, Expr index, const Dim& size) {
  index = index.cast(DType::kI64);
  if (!c.ok()) return index;
  const Expr end = Expr{&c.b, size_value(c.b, size, DType::kI64)}.broadcast(index.shape());
  return choose(index < 0, index + end, index);
}

Values gather(OnnxCall& c) {
  const Expr x = c.tensor(0);
  if (!c.ok()) return {};
  const Shape shape = x.shape();
  const int axis = c.axis(c.integer("axis", 0), shape.size());
  if (!c.ok()) return {};
  const KnownTensor* known = c.known(1);
  const Dim& size = shape[static_cast<size_t>(axis)];
  // One element that is known is a view, as select is in PyTorch.
  if (known != nullptr && known->numel() == 1 && known->integers.size() == 1 &&
      known->integers[0].is_constant() && known->sizes.size() <= 1) {
    const int64_t at = known->integers[0].constant();
    const Dim place = at < 0 ? size + Dim(at) : Dim(at);
    if (c.is_never_negative(place) && c.is_never_negative(size - place - Dim(1))) {
      Shape result = shape;
      result.erase(result.begin() + axis);
      if (!known->sizes.empty()) result.insert(result.begin() + axis, 1);
      return {c.b.reshape(c.b.slice(x.id, axis, place, 1), result)};
    }
  }
  const Expr index = c.tensor(1);
  if (!c.ok()) return {};
  if (axis == 0 && shape.size() == 2)
    return {c.aten("aten.embedding.default", {{"weight", x}, {"indices", index}}).id};
  return {gather_axis(c.b, x.id, axis, index.id)};
}

Values gather_elements(OnnxCall& c) {
  const Expr x = c.tensor(0), index = c.tensor(1);
  if (!c.ok()) return {};
  const Shape shape = x.shape();
  const int axis = c.axis(c.integer("axis", 0), shape.size());
  if (!c.ok()) return {};
  const Expr front = from_front(c, index, shape[static_cast<size_t>(axis)]);
  return {gather_along(c.b, x.id, axis, front.id)};
}

// The parts of index tuples that lie along the last axis, each [i...].
std::vector<NodeId> tuple_parts(OnnxCall& c, Expr index) {
  const Shape shape = index.shape();
  if (shape.empty() || !shape.back().is_constant() ||
      shape.back().constant() > static_cast<int64_t>(kMostOnnxRank)) {
    c.invalid("needs tuples of indices, of a constant length");
    return {};
  }
  const int last = static_cast<int>(shape.size()) - 1;
  const Shape each(shape.begin(), shape.end() - 1);
  std::vector<NodeId> parts;
  for (int64_t i = 0; i < shape.back().constant(); ++i)
    parts.push_back(c.b.reshape(c.b.slice(index.id, last, i, 1), each));
  return parts;
}

Values gather_nd(OnnxCall& c) {
  const Expr x = c.tensor(0), index = c.tensor(1);
  if (!c.ok()) return {};
  const Shape shape = x.shape();
  std::vector<NodeId> parts = tuple_parts(c, index);
  const int64_t batch = c.integer("batch_dims", 0);
  if (!c.ok()) return {};
  const Shape at = c.b.shape(parts.empty() ? index.id : parts[0]);
  if (batch < 0 || batch > std::ssize(at) ||
      static_cast<size_t>(batch) + parts.size() > shape.size() || parts.empty())
    return {c.invalid("the tuples have more indices than the tensor has axes")};
  // Along the batch's axes a tuple indexes its own place.
  for (int64_t i = batch; i-- > 0;)
    parts.insert(parts.begin(), coordinate(c.b, at, static_cast<size_t>(i)));
  return {gather_leading(c.b, x.id, parts)};
}

std::optional<Combine> combine_of(OnnxCall& c) {
  const std::string_view name = c.text("reduction", "none");
  if (name == "none") return Combine::kSet;
  for (const Combine each : {Combine::kAdd, Combine::kMul, Combine::kMax, Combine::kMin})
    if (to_string(each) == name) return each;
  c.invalid("there is no reduction '" + std::string(name.substr(0, 40)) + "'");
  return std::nullopt;
}

Values scatter_nd(OnnxCall& c) {
  const Expr x = c.tensor(0), index = c.tensor(1), updates = c.tensor(2);
  if (!c.ok()) return {};
  const Shape shape = x.shape();
  const std::vector<NodeId> parts = tuple_parts(c, index);
  const auto combine = combine_of(c);
  if (!c.ok()) return {};
  if (parts.empty() || parts.size() > shape.size())
    return {c.invalid("the tuples have more indices than the tensor has axes")};
  const auto rest = shape.begin() + static_cast<std::ptrdiff_t>(parts.size());
  Shape rows = {numel(Shape(shape.begin(), rest))};
  rows.insert(rows.end(), rest, shape.end());
  const NodeId places = linear_index(c.b, shape, parts);
  const NodeId changed = c.b.scatter(c.b.reshape(x.id, rows), places, updates.id, *combine);
  return {c.b.reshape(changed, shape)};
}

Values scatter_elements(OnnxCall& c) {
  const Expr x = c.tensor(0), index = c.tensor(1), updates = c.tensor(2);
  if (!c.ok()) return {};
  const Shape shape = x.shape();
  const int axis = c.axis(c.integer("axis", 0), shape.size());
  const auto combine = combine_of(c);
  if (!c.ok()) return {};
  const Expr front = from_front(c, index, shape[static_cast<size_t>(axis)]);
  const NodeId places = places_along(c.b, shape, axis, front.id);
  if (!c.ok()) return {};
  const Dim count = numel(front.shape());
  const NodeId changed =
      c.b.scatter(c.b.reshape(x.id, {numel(shape)}), c.b.reshape(places, {count}),
                  c.b.reshape(updates.id, {count}), *combine);
  return {c.b.reshape(changed, shape)};
}

// off everywhere but where the index along the new axis is the element's.
Values one_hot(OnnxCall& c) {
  const Expr index = c.tensor(0), values = c.tensor(2);
  const std::vector<double> depth = c.reals(1, "depth");
  if (!c.ok()) return {};
  if (depth.size() != 1 || !(depth[0] >= 0 && depth[0] <= 1 << 30) || values.shape() != Shape{2})
    return {c.invalid("needs a depth, and the two values off and on")};
  const Dim size = static_cast<int64_t>(depth[0]);
  Shape shape = index.shape();
  const int axis = c.axis(c.integer("axis", -1), shape.size() + 1);
  if (!c.ok()) return {};
  const Expr front = from_front(c, index, size);
  Shape spread = shape;
  spread.insert(spread.begin() + axis, 1);
  shape.insert(shape.begin() + axis, size);
  const Expr at = {&c.b, coordinate(c.b, shape, static_cast<size_t>(axis))};
  const auto value = [&](int64_t i) {
    return Expr{&c.b, c.b.reshape(c.b.slice(values.id, 0, i, 1), {})}.broadcast(shape);
  };
  return {choose(at == front.reshape(spread).broadcast(shape), value(1), value(0)).id};
}

constexpr OnnxLowering kOnnxIndexingLowerings[] = {
    {"Gather", gather},        {"GatherElements", gather_elements},   {"GatherND", gather_nd},
    {"ScatterND", scatter_nd}, {"ScatterElements", scatter_elements}, {"OneHot", one_hot},
};

}  // namespace

std::span<const OnnxLowering> onnx_indexing_lowerings() {
  return kOnnxIndexingLowerings;
}

}  // namespace kiln
