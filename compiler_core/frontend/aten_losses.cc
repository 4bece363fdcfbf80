// Losses and distances. Means and sums of half types are taken in f32 and rounded once.
#include <cmath>
#include <optional>

#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

std::vector<int> all_axes(Expr x) {
  std::vector<int> axes;
  for (size_t i = 0; i < x.shape().size(); ++i) axes.push_back(static_cast<int>(i));
  return axes;
}

// `loss`, in its compute type, reduced as the argument "reduction" says.
Expr reduced(Call& c, Expr loss) {
  const int64_t reduction = c.integer("reduction", kMean);
  if (reduction == kNone || loss.shape().empty() || !c.ok()) return loss;
  const Expr total = loss.sum(all_axes(loss), false);
  if (reduction == kSum) return total;
  return total / Expr{&c.b, count_value(c.b, loss.id, all_axes(loss), loss.dtype())};
}

// A loss of two tensors, element by element.
template <class F>
Values pairwise(Call& c, F f) {
  const Expr x = tensor(c, "self"), target = tensor(c, "target");
  if (!c.ok()) return {};
  const Operand both[] = {{x.id, {}}, {target.id, {}}};
  const DType type = to_float_type(result_type(c.b, both)), compute = compute_type(type);
  return {reduced(c, f(x.cast(compute), target.cast(compute))).cast(type).id};
}

Values mse_loss(Call& c) {
  return pairwise(c, [](Expr x, Expr y) { return (x - y) * (x - y); });
}
Values l1_loss(Call& c) {
  return pairwise(c, [](Expr x, Expr y) { return abs(x - y); });
}
Values smooth_l1_loss(Call& c) {
  const double beta = c.real("beta", 1);
  return pairwise(c, [&](Expr x, Expr y) {
    const Expr d = abs(x - y);
    return beta == 0 ? d : choose(d < beta, d * d * 0.5 / beta, d - 0.5 * beta);
  });
}
Values huber_loss(Call& c) {
  const double delta = c.real("delta", 1);
  return pairwise(c, [&](Expr x, Expr y) {
    const Expr d = abs(x - y);
    return choose(d <= delta, d * d * 0.5, (d - 0.5 * delta) * delta);
  });
}
Values kl_div(Call& c) {
  const bool log_target = c.flag("log_target", false);
  return pairwise(c, [&](Expr x, Expr y) {
    if (log_target) return exp(y) * (y - x);
    return choose(y == 0, 0, y * log(y)) - y * x;
  });
}
Values soft_margin_loss(Call& c) {
  return pairwise(c, [](Expr x, Expr y) { return log1p(exp(-(y * x))); });
}
Values hinge_embedding_loss(Call& c) {
  const double margin = c.real("margin", 1);
  return pairwise(
      c, [&](Expr x, Expr y) { return choose(y != 1, max(margin - x, 0), choose(y != -1, x, 0)); });
}
Values poisson_nll_loss(Call& c) {
  const bool log_input = c.flag("log_input", true), full = c.flag("full", false);
  const double eps = c.real("eps", 1e-8);
  const Expr x = tensor(c, "input"), target = tensor(c, "target");
  if (!c.ok()) return {};
  if (full) return {c.unsupported("the Stirling term (full=True) is not covered")};
  const Expr a = wide(x), y = target.cast(a.dtype());
  const Expr loss = log_input ? exp(a) - y * a : a - y * log(a + eps);
  return {reduced(c, loss).cast(x.dtype()).id};
}

Expr weighted(Call& c, Expr loss) {
  const NodeId weight = c.optional_tensor("weight");
  if (weight == kInvalidNode) return loss;
  return loss * Expr{&c.b, weight}.cast(loss.dtype());
}
Values binary_cross_entropy(Call& c) {
  return pairwise(c, [&](Expr x, Expr y) {
    // Logarithms no less than -100, as ATen.
    const Expr yes = max(log(x), -100), no = max(log1p(-x), -100);
    return weighted(c, (y - 1) * no - y * yes);
  });
}
Values binary_cross_entropy_with_logits(Call& c) {
  return pairwise(c, [&](Expr x, Expr y) {
    const Expr log_yes = log1p(exp(-abs(x))) + max(-x, 0);
    Expr loss = (1 - y) * x + log_yes;
    if (c.has("pos_weight")) {
      const Expr factor = (tensor(c, "pos_weight").cast(x.dtype()) - 1) * y + 1;
      loss = (1 - y) * x + factor * log_yes;
    }
    return weighted(c, loss);
  });
}

// The class axis: the second, the only one of a single sample.
int class_axis(const Shape& shape) {
  return shape.size() == 1 ? 0 : 1;
}

struct NllLoss {
  Expr loss, total_weight;
};

// `logs`, log-probabilities in their compute type, [n, classes, ...] or [classes]; target [n, ...].
NllLoss nll(Call& c, Expr logs, Expr target, std::optional<Expr> weight) {
  GraphBuilder& b = c.b;
  const int64_t reduction = c.integer("reduction", kMean),
                ignored = c.integer("ignore_index", -100);
  const int axis = class_axis(logs.shape());
  Shape samples = logs.shape();
  if (!c.ok() || samples.empty()) return {logs, logs};
  samples.erase(samples.begin() + axis);
  if (target.shape() != samples) {
    c.invalid("a target of shape " + to_string(target.shape()) + " for scores of shape " +
              to_string(logs.shape()));
    return {logs, logs};
  }
  const Expr kept = target != static_cast<double>(ignored);
  const Expr safe = choose(kept, target, 0);
  Shape column = samples;
  column.insert(column.begin() + axis, 1);
  const Expr entry{&b, gather_along(b, logs.id, axis, safe.reshape(column).id)};
  Expr loss = -entry.reshape(samples);
  Expr scale = loss.like(1);
  if (weight) {
    scale = {&b, b.gather(weight->cast(loss.dtype()).id, safe.id)};
    loss = loss * scale;
  }
  loss = choose(kept, loss, 0);
  scale = choose(kept, scale, 0);
  const Expr total = scale.sum(all_axes(scale), false);
  if (reduction == kNone) return {loss, loss.like(0).sum(all_axes(loss), false)};
  const Expr sum = loss.sum(all_axes(loss), false);
  return {reduction == kSum ? sum : sum / total, total};
}

std::optional<Expr> class_weight(Call& c) {
  const NodeId weight = c.optional_tensor("weight");
  return weight == kInvalidNode ? std::nullopt : std::optional(Expr{&c.b, weight});
}

Values nll_loss(Call& c) {
  const Expr logs = tensor(c, "self"), target = tensor(c, "target").cast(DType::kI64);
  const std::optional<Expr> weight = class_weight(c);
  if (!c.ok()) return {};
  const NllLoss result = nll(c, wide(logs), target, weight);
  return {result.loss.cast(logs.dtype()).id, result.total_weight.cast(logs.dtype()).id};
}

// Probabilities of classes, instead of their numbers.
Values soft_cross_entropy(Call& c, Expr logs, Expr target, DType type) {
  GraphBuilder& b = c.b;
  const int64_t reduction = c.integer("reduction", kMean);
  const double smoothing = c.real("label_smoothing", 0);
  const std::optional<Expr> weight = class_weight(c);
  const int axis = class_axis(logs.shape());
  const Shape shape = logs.shape();
  if (!c.ok() || target.shape() != shape)
    return {c.invalid("class probabilities have the shape of the scores")};
  const Dim& classes = shape[static_cast<size_t>(axis)];
  Expr p = target.cast(logs.dtype());
  if (smoothing > 0)
    p = p * (1 - smoothing) + Expr{&b, size_value(b, classes, logs.dtype())}.like(smoothing) /
                                  Expr{&b, size_value(b, classes, logs.dtype())};
  Expr terms = p * logs;
  if (weight)
    terms =
        terms * Expr{&b, b.broadcast_in(weight->cast(logs.dtype()).id, shape, std::span(&axis, 1))};
  const Expr losses = -terms.sum({axis}, false);
  if (reduction == kNone) return {losses.cast(type).id};
  const Expr total = losses.sum(all_axes(losses), false);
  if (reduction == kSum) return {total.cast(type).id};
  const Result<Dim> samples = Dim::divide_exact(numel(shape), classes);
  if (!samples) return {c.invalid("cross_entropy of no classes")};
  return {(total / Expr{&b, size_value(b, *samples, logs.dtype())}).cast(type).id};
}

Values cross_entropy(Call& c) {
  GraphBuilder& b = c.b;
  const Expr x = tensor(c, "self"), target = tensor(c, "target");
  const double smoothing = c.real("label_smoothing", 0);
  if (!c.ok() || x.shape().empty()) return {c.invalid("cross_entropy of a scalar")};
  if (!is_float(x.dtype())) return {c.invalid("cross_entropy of a dtype that is not a float")};
  const int axis = class_axis(x.shape());
  // ATen rounds the log-probabilities before it picks one.
  const Expr logs = wide(Expr{&b, log_softmax(b, wide(x).id, axis)}.cast(x.dtype()));
  if (is_float(target.dtype())) return soft_cross_entropy(c, logs, target, x.dtype());
  const std::optional<Expr> weight = class_weight(c);
  const Expr classes = target.cast(DType::kI64);
  const NllLoss result = nll(c, logs, classes, weight);
  if (smoothing == 0 || !c.ok()) return {result.loss.cast(x.dtype()).id};
  // The other part of the target spreads evenly over all classes.
  Expr terms = -logs;
  if (weight)
    terms = terms * Expr{&b, b.broadcast_in(weight->cast(logs.dtype()).id, logs.shape(),
                                            std::span(&axis, 1))};
  const Expr kept = classes != static_cast<double>(c.integer("ignore_index", -100));
  Expr even = choose(kept, terms.sum({axis}, false), 0);
  const int64_t reduction = c.integer("reduction", kMean);
  if (reduction != kNone) even = even.sum(all_axes(even), false);
  if (reduction == kMean) even = even / result.total_weight;
  const Expr share = Expr{&b, size_value(b, x.shape()[static_cast<size_t>(axis)], logs.dtype())};
  const Expr loss = result.loss * (1 - smoothing) + even * smoothing / share;
  return {loss.cast(x.dtype()).id};
}

// Products of x and y over their norms, each no less than eps.
Values cosine_similarity(Call& c) {
  const Expr x = tensor(c, "x1"), y = tensor(c, "x2");
  const double eps = c.real("eps", 1e-8);
  if (!c.ok()) return {};
  const Operand both[] = {{x.id, {}}, {y.id, {}}};
  const DType type = result_type(c.b, both), compute = compute_type(type);
  const Shape shape = broadcast_shapes(c.b, x.shape(), y.shape());
  const int axis = c.axis("dim", shape.size(), 1);
  if (!c.ok() || shape.empty()) return {c.invalid("cosine_similarity of scalars")};
  const Expr a = x.cast(compute).broadcast(shape), b = y.cast(compute).broadcast(shape);
  const Expr norm_a = max(sqrt((a * a).sum({axis}, false)), eps);
  const Expr norm_b = max(sqrt((b * b).sum({axis}, false)), eps);
  return {((a * b).sum({axis}, false) / (norm_a * norm_b)).cast(type).id};
}

Values pairwise_distance(Call& c) {
  const Expr x = tensor(c, "x1"), y = tensor(c, "x2");
  const double p = c.real("p", 2), eps = c.real("eps", 1e-6);
  const bool keep = c.flag("keepdim", false);
  if (!c.ok()) return {};
  const Expr d = wide(x) - wide(y) + eps;
  if (d.shape().empty()) return {c.invalid("pairwise_distance of scalars")};
  return {p_norm(d, p, {static_cast<int>(d.shape().size()) - 1}, keep).cast(x.dtype()).id};
}

// All distances between the rows of x [..., n, d] and y [..., m, d].
Values cdist(Call& c) {
  const Expr x = tensor(c, "x1"), y = tensor(c, "x2");
  const double p = c.real("p", 2);
  Shape left = x.shape(), right = y.shape();
  if (!c.ok() || left.size() < 2 || right.size() < 2) return {c.invalid("cdist needs matrices")};
  left.insert(left.end() - 1, 1);
  right.insert(right.end() - 2, 1);
  const Expr d = wide(x).reshape(left) - wide(y).reshape(right);
  return {p_norm(d, p, {static_cast<int>(d.shape().size()) - 1}, false).cast(x.dtype()).id};
}

Values dist(Call& c) {
  const Expr x = tensor(c, "self"), y = tensor(c, "other");
  const double p = c.real("p", 2);
  if (!c.ok()) return {};
  const Expr d = wide(x) - wide(y);
  return {p_norm(d, p, all_axes(d), false).cast(x.dtype()).id};
}

Values margin_ranking_loss(Call& c) {
  const Expr x = tensor(c, "input1"), y = tensor(c, "input2"), target = tensor(c, "target");
  const double margin = c.real("margin", 0);
  if (!c.ok()) return {};
  const Expr a = wide(x), loss = max(-(target.cast(a.dtype()) * (a - wide(y))) + margin, 0);
  return {reduced(c, loss).cast(x.dtype()).id};
}
Values triplet_margin_loss(Call& c) {
  const Expr anchor = tensor(c, "anchor"), positive = tensor(c, "positive"),
             negative = tensor(c, "negative");
  const double margin = c.real("margin", 1), p = c.real("p", 2), eps = c.real("eps", 1e-6);
  if (c.flag("swap", false)) return {c.unsupported("triplet_margin_loss with swap is not covered")};
  if (!c.ok() || anchor.shape().empty()) return {c.invalid("triplet_margin_loss of scalars")};
  const std::vector<int> last = {static_cast<int>(anchor.shape().size()) - 1};
  const Expr near = p_norm(wide(anchor) - wide(positive) + eps, p, last, false);
  const Expr far = p_norm(wide(anchor) - wide(negative) + eps, p, last, false);
  return {reduced(c, max(near - far + margin, 0)).cast(anchor.dtype()).id};
}
// How far every other class comes within the margin of the right one.
Values multi_margin_loss(Call& c) {
  GraphBuilder& b = c.b;
  const Expr x = tensor(c, "self"), target = tensor(c, "target");
  const double p = c.real("p", 1), margin = c.real("margin", 1);
  const NodeId weight = c.optional_tensor("weight");
  if (!c.ok() || x.shape().empty() || x.shape().size() > 2)
    return {c.invalid("multi_margin_loss needs scores [samples, classes]")};
  const int axis = class_axis(x.shape());
  Shape samples = x.shape(), column = x.shape();
  samples.erase(samples.begin() + axis);
  column[static_cast<size_t>(axis)] = 1;
  const Expr classes = target.reshape(column), scores = wide(x);
  const Expr right{&b, gather_along(b, scores.id, axis, classes.id)};
  Expr loss = max(scores - right + margin, 0);
  if (p == 2) loss = loss * loss;
  const Expr place{&b, coordinate(b, x.shape(), static_cast<size_t>(axis))};
  loss = choose(place == classes.cast(DType::kI64), 0, loss);
  if (weight != kInvalidNode)
    loss = loss * Expr{&b, b.gather(b.cast(weight, loss.dtype()), classes.id)};
  const Expr each = Expr{&b, mean(b, loss.id, {axis})}.reshape(samples);
  return {reduced(c, each).cast(x.dtype()).id};
}
Values cosine_embedding_loss(Call& c) {
  const Expr x = tensor(c, "input1"), y = tensor(c, "input2"), target = tensor(c, "target");
  const double margin = c.real("margin", 0);
  if (!c.ok() || x.shape().empty()) return {c.invalid("cosine_embedding_loss of scalars")};
  const std::vector<int> last = {static_cast<int>(x.shape().size()) - 1};
  const Expr a = wide(x), b = wide(y);
  constexpr double kEpsilon = 1e-12;
  const Expr squares =
      ((a * a).sum(last, false) + kEpsilon) * ((b * b).sum(last, false) + kEpsilon);
  const Expr cosine = (a * b).sum(last, false) / sqrt(squares), t = target.cast(a.dtype());
  const Expr loss =
      choose(t == 1, 1 - cosine, choose(t == -1, max(cosine - margin, 0), cosine * 0));
  return {reduced(c, loss).cast(x.dtype()).id};
}

// Norms of vectors along axes.
Values vector_norm(Call& c) {
  const Expr x = tensor(c, "self");
  const char* order_name = c.has("ord") ? "ord" : "p";
  double order = c.has(order_name) ? c.real(order_name) : 2;
  const std::vector<int> axes = c.axes("dim", x.shape().size());
  const DType type = c.dtype("dtype", to_float_type(x.dtype()));
  if (!c.ok()) return {};
  // The norm of one element is its absolute value, as torch has it: powers would overflow.
  const bool of_one = std::all_of(axes.begin(), axes.end(), [&](int axis) {
    return x.shape()[static_cast<size_t>(axis)].is(1);
  });
  if (of_one) order = order == 0 ? 0 : 1;
  return {p_norm(x.cast(compute_type(type)), order, axes, c.flag("keepdim", false)).cast(type).id};
}

constexpr Lowering kLossLowerings[] = {
    {"aten.mse_loss.default", mse_loss},
    {"aten.l1_loss.default", l1_loss},
    {"aten.smooth_l1_loss.default", smooth_l1_loss},
    {"aten.huber_loss.default", huber_loss},
    {"aten.kl_div.default", kl_div},
    {"aten.soft_margin_loss.default", soft_margin_loss},
    {"aten.hinge_embedding_loss.default", hinge_embedding_loss},
    {"aten.poisson_nll_loss.default", poisson_nll_loss},
    {"aten.binary_cross_entropy.default", binary_cross_entropy},
    {"aten.binary_cross_entropy_with_logits.default", binary_cross_entropy_with_logits},
    {"aten.nll_loss.default", nll_loss},
    {"aten.nll_loss_nd.default", nll_loss},
    {"aten.nll_loss2d.default", nll_loss},
    {"aten.nll_loss_forward.default", nll_loss},
    {"aten.nll_loss2d_forward.default", nll_loss},
    {"aten.cross_entropy_loss.default", cross_entropy},
    {"aten.cosine_similarity.default", cosine_similarity},
    {"aten.multi_margin_loss.default", multi_margin_loss},
    {"aten.pairwise_distance.default", pairwise_distance},
    {"aten.cdist.default", cdist},
    {"aten._cdist_forward.default", cdist},
    {"aten.dist.default", dist},
    {"aten.margin_ranking_loss.default", margin_ranking_loss},
    {"aten.triplet_margin_loss.default", triplet_margin_loss},
    {"aten.cosine_embedding_loss.default", cosine_embedding_loss},
    {"aten.linalg_vector_norm.default", vector_norm},
    {"aten.norm.Scalar", vector_norm},
    {"aten.norm.ScalarOpt_dim", vector_norm},
    {"aten.norm.ScalarOpt_dim_dtype", vector_norm},
    {"aten.norm.ScalarOpt_dtype", vector_norm},
    {"aten.frobenius_norm.dim", vector_norm},
};

}  // namespace

std::span<const Lowering> loss_lowerings() {
  return kLossLowerings;
}

}  // namespace kiln
