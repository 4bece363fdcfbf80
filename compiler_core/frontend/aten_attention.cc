// scaled_dot_product_attention: softmax(q kᵀ * scale + mask) v, as ATen's flash kernel computes it:
// scores and softmax in f32, the probabilities in v's dtype for the second product.
#include <cmath>
#include <limits>

#include "compiler_core/frontend/decompositions.h"

namespace kiln {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// Key and value heads repeated so that each query head has its own.
NodeId repeat_heads(Call& c, NodeId x, const Dim& heads) {
  GraphBuilder& b = c.b;
  const Shape shape = b.shape(x);
  if (!c.ok() || shape.size() < 3) return c.invalid("enable_gqa needs an axis of heads");
  const size_t axis = shape.size() - 3;
  if (shape[axis] == heads) return x;
  const Result<Dim> times =
      shape[axis].is(0) ? Result<Dim>(Dim(0)) : Dim::divide_exact(heads, shape[axis]);
  if (!times) return c.invalid("the query heads are no multiple of the key heads");
  Shape separate = shape, merged = shape;
  separate.insert(separate.begin() + static_cast<std::ptrdiff_t>(axis) + 1, 1);
  Shape spread = separate;
  spread[axis + 1] = *times;
  merged[axis] = heads;
  return b.reshape(b.broadcast(b.reshape(x, separate), spread), merged);
}

// A query sees the keys up to its own place.
NodeId causal_mask(GraphBuilder& b, NodeId scores) {
  const Shape shape = b.shape(scores);
  if (!b.ok()) return kInvalidNode;
  const NodeId query = coordinate(b, shape, shape.size() - 2);
  return b.binary(Op::kLe, coordinate(b, shape, shape.size() - 1), query);
}

NodeId apply_mask(Call& c, NodeId scores, NodeId mask) {
  GraphBuilder& b = c.b;
  const NodeId wide = b.broadcast(mask, b.shape(scores));
  if (b.dtype(mask) == DType::kBool)
    return b.select(wide, scores, constant_like(b, scores, kMinusInfinity));
  return b.binary(Op::kAdd, scores, b.cast(wide, b.dtype(scores)));
}

Values attention(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId query = c.tensor("query"), mask = c.optional_tensor("attn_mask");
  NodeId key = c.tensor("key"), value = c.tensor("value");
  if (c.real("dropout_p", 0) != 0)
    return {
        c.unsupported("attention with dropout is not covered; call model.eval() before "
                      "torch.export")};
  const bool causal = c.flag("is_causal", false), grouped = c.flag("enable_gqa", false);
  const Shape shape = b.shape(query);
  if (!c.ok() || shape.size() < 2 || b.shape(key).size() != shape.size() ||
      b.shape(value).size() != shape.size())
    return {c.invalid("attention needs query, key and value of one rank")};
  const bool has_scale = c.has("scale");
  if (!has_scale && !shape.back().is_constant())
    return {c.unsupported("attention over a symbolic head size without scale is not covered")};
  const double scale =
      has_scale ? c.real("scale") : 1 / std::sqrt(static_cast<double>(shape.back().constant()));
  if (grouped && shape.size() >= 3) {
    key = repeat_heads(c, key, shape[shape.size() - 3]);
    value = repeat_heads(c, value, shape[shape.size() - 3]);
  }
  if (!c.ok()) return {};
  const int last = static_cast<int>(shape.size()) - 1;
  NodeId scores = matrix_product(b, query, swap_axes(b, key, last - 1, last));
  scores = b.binary(Op::kMul, scores, constant_like(b, scores, scale));
  if (causal) scores = apply_mask(c, scores, causal_mask(b, scores));
  if (mask != kInvalidNode) scores = apply_mask(c, scores, mask);
  const int axis = static_cast<int>(b.shape(scores).size()) - 1;
  const NodeId p =
      mask != kInvalidNode ? softmax_or_zero(b, scores, axis) : softmax(b, scores, axis);
  return {b.cast(matrix_product(b, b.cast(p, b.dtype(value)), value), b.dtype(query))};
}

constexpr Lowering kLowerings[] = {
    {"aten.scaled_dot_product_attention.default", attention},
};

}  // namespace

std::span<const Lowering> attention_lowerings() {
  return kLowerings;
}

}  // namespace kiln
