// scaled_dot_product_attention: softmax(q kᵀ * scale + mask) v, as ATen's flash kernel computes it:
// scores and softmax in f32, the probabilities in v's dtype for the second product.
#include <cmath>
#include <limits>

#include "compiler_core/base/math.h"
#include "compiler_core/frontend/expr.h"

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

struct Attention {
  NodeId output = kInvalidNode, scores = kInvalidNode, mask = kInvalidNode;
  NodeId value = kInvalidNode;  // with a head for each of the query's
};

// softmax(scores), with what dropout leaves of it.
NodeId probabilities(Call& c, const Attention& a) {
  GraphBuilder& b = c.b;
  if (!c.ok()) return kInvalidNode;
  const int axis = static_cast<int>(b.shape(a.scores).size()) - 1;
  return a.mask != kInvalidNode ? softmax_or_zero(b, a.scores, axis) : softmax(b, a.scores, axis);
}

double scale_of(Call& c, const Shape& query) {
  if (c.has("scale")) return c.real("scale");
  if (query.back().is_constant())
    return 1 / std::sqrt(static_cast<double>(query.back().constant()));
  c.unsupported("attention over a symbolic head size without scale is not covered");
  return 1;
}

// The scores alone.
Attention attend_to(Call& c) {
  GraphBuilder& b = c.b;
  Attention a;
  const NodeId query = c.tensor("query");
  a.mask = c.optional_tensor(c.has("attn_bias") ? "attn_bias" : "attn_mask");
  NodeId key = c.tensor("key");
  a.value = c.tensor("value");
  const bool causal = c.flag("is_causal", false), grouped = c.flag("enable_gqa", false);
  const Shape shape = b.shape(query);
  if (!c.ok() || shape.size() < 2 || b.shape(key).size() != shape.size() ||
      b.shape(a.value).size() != shape.size()) {
    c.invalid("attention needs query, key and value of one rank");
    return a;
  }
  const double scale = scale_of(c, shape);
  if (grouped && shape.size() >= 3) {
    key = repeat_heads(c, key, shape[shape.size() - 3]);
    a.value = repeat_heads(c, a.value, shape[shape.size() - 3]);
  }
  if (!c.ok()) return a;
  const int last = static_cast<int>(shape.size()) - 1;
  a.scores = matrix_product(b, query, swap_axes(b, key, last - 1, last));
  a.scores = b.binary(Op::kMul, a.scores, constant_like(b, a.scores, scale));
  if (causal) a.scores = apply_mask(c, a.scores, causal_mask(b, a.scores));
  if (a.mask != kInvalidNode) a.scores = apply_mask(c, a.scores, a.mask);
  return a;
}

Attention attend(Call& c) {
  GraphBuilder& b = c.b;
  const double dropped = c.real("dropout_p", 0);
  Attention a = attend_to(c);
  if (!c.ok()) return a;
  NodeId p = probabilities(c, a);
  if (dropped != 0 && c.ok()) p = dropout_of(c, p, dropped);
  if (!c.ok()) return a;
  a.output =
      b.cast(matrix_product(b, b.cast(p, b.dtype(a.value)), a.value), b.dtype(c.tensor("query")));
  return a;
}

Values attention(Call& c) {
  return {attend(c).output};
}

// The fused kernels' ops also give the logarithm of each row's sum, for the backward op. Their
// further outputs are the state of a random generator, from which the backward op would draw what the
// kernel dropped: where something is dropped, both are left to PyTorch.
template <size_t outputs>
Values fused_attention(Call& c) {
  GraphBuilder& b = c.b;
  if (c.real("dropout_p", 0) != 0)
    return {
        c.unsupported("dropout in a fused kernel, whose gradient draws from the kernel's own "
                      "random numbers, is not covered")};
  const Attention a = attend(c);
  if (!c.ok()) return {};
  const int axis = static_cast<int>(b.shape(a.scores).size()) - 1;
  const Expr scores{&b, a.scores};
  const Expr greatest{&b, b.reduce(Op::kReduceMax, a.scores, {axis}, true)};
  const Expr sum = exp(scores - greatest).sum({axis});
  Shape rows = scores.shape();
  rows.pop_back();
  Values values(outputs, kInvalidNode);
  values[0] = a.output;
  values[1] = (log(sum) + greatest).reshape(rows).id;
  return values;
}

// The memory-efficient kernel gives these logarithms, where they are asked for, in rows that infinity
// fills up to a multiple of 32.
NodeId efficient_log_sums(Call& c, NodeId rows) {
  constexpr int64_t kRow = 32;
  GraphBuilder& b = c.b;
  const Shape shape = b.shape(rows);
  const int last = static_cast<int>(shape.size()) - 1;
  if (!c.flag("compute_log_sumexp", true)) return b.slice(rows, last, 0, 0);
  if (!shape.back().is_constant())
    return c.unsupported(
        "attention over a symbolic number of queries that keeps its sums is not covered");
  const int64_t missing = round_up(shape.back().constant(), kRow) - shape.back().constant();
  if (missing == 0) return rows;
  std::vector<Dim> low(shape.size()), high(shape.size());
  high.back() = missing;
  return b.pad(rows, low, high, constant_bits(b.dtype(rows), -kMinusInfinity));
}

// These ops keep their generator's state among what the backward op is given, dropout or not.
NodeId generator_state(Call& c) {
  return c.b.constant_int(DType::kI64, 0);
}

Values efficient_attention(Call& c) {
  Values values = fused_attention<4>(c);
  if (!c.ok()) return values;
  values[1] = efficient_log_sums(c, values[1]);
  values[2] = values[3] = generator_state(c);
  return values;
}

Values cudnn_attention(Call& c) {
  Values values = fused_attention<9>(c);
  if (c.ok()) values[6] = values[7] = generator_state(c);
  return values;
}

// The forward op's logarithm of each row's sum, as [..., queries, 1]. The memory-efficient kernel pads the
// queries; cuDNN's keeps an axis of size 1 for the keys.
Expr given_log_sums(Call& c, const Expr& scores) {
  const Expr given = tensor(c, "logsumexp");
  if (!c.ok()) return given;
  Shape rows = scores.shape();
  rows.back() = 1;
  if (given.shape().size() == rows.size()) return given.cast(scores.dtype());
  const int last = static_cast<int>(rows.size()) - 2;
  return given.slice(last, 0, rows[rows.size() - 2]).reshape(rows).cast(scores.dtype());
}

// Recomputes the probabilities from the logarithms of their sums, rounded as the second product of the forward
// op reads them, and applies the derivative of softmax. Its row sum is that of gradient times output, so that
// no reduction reads the scores.
Values attention_backward(Call& c) {
  GraphBuilder& b = c.b;
  const Attention a = attend_to(c);
  const Expr grad = tensor(c, c.has("grad_out") ? "grad_out" : "grad_out_");
  if (c.real("dropout_p", 0) != 0)
    return {c.unsupported("the gradient of attention with dropout is not covered")};
  const Expr query = tensor(c, "query"), key = tensor(c, "key"), value = tensor(c, "value");
  const Expr out = tensor(c, "out"), scores{&b, a.scores};
  if (!c.ok()) return {};
  const Expr log_sums = given_log_sums(c, scores);
  if (!c.ok()) return {};
  const double scale = scale_of(c, query.shape());
  const int last = static_cast<int>(query.shape().size()) - 1;
  const DType type = value.dtype(), wide = scores.dtype();
  const auto product = [&](Expr x, Expr y) { return Expr{&b, matrix_product(b, x.id, y.id)}; };
  const auto turned = [&](Expr x) { return Expr{&b, swap_axes(b, x.id, last - 1, last)}; };
  Expr p = exp(scores - log_sums);
  // The logarithm of a row that sees nothing is no number.
  if (a.mask != kInvalidNode) p = choose(scores == kMinusInfinity, p.like(0), p);
  p = p.cast(type);
  const Expr dp = product(grad, turned(value));
  const Expr row = (grad.cast(wide) * out.cast(wide)).sum({last});
  const Expr ds = (p.cast(wide) * (dp - row) * scale).cast(type);
  // Every product reads p and ds as they are stored: turning a small result costs less than a second copy of
  // them.
  return {product(ds, key).cast(type).id, turned(product(turned(query), ds)).cast(type).id,
          turned(product(turned(grad), p)).cast(type).id, kInvalidNode};
}

constexpr Lowering kAttentionLowerings[] = {
    {"aten.scaled_dot_product_attention.default", attention},
    {"aten._scaled_dot_product_flash_attention_for_cpu.default", fused_attention<2>},
    {"aten._scaled_dot_product_flash_attention.default", fused_attention<9>},
    {"aten._scaled_dot_product_efficient_attention.default", efficient_attention},
    {"aten._scaled_dot_product_cudnn_attention.default", cudnn_attention},
    {"aten._scaled_dot_product_flash_attention_for_cpu_backward.default", attention_backward},
    {"aten._scaled_dot_product_flash_attention_backward.default", attention_backward},
    {"aten._scaled_dot_product_efficient_attention_backward.default", attention_backward},
    {"aten._scaled_dot_product_cudnn_attention_backward.default", attention_backward},
};

}  // namespace

std::span<const Lowering> attention_lowerings() {
  return kAttentionLowerings;
}

}  // namespace kiln
