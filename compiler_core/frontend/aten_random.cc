// Random numbers: Philox words of the program's seed, each call from a stream of its own. Same
// seed, same words on every target; not PyTorch's own sequence, which differs between its devices
// too.
#include <cmath>
#include <numbers>

#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

// Words in [0, 2^32) divided by a power of two, towards zero.
Expr words(Call& c, const Shape& shape, int64_t divisor) {
  const Expr w{&c.b, c.random_words(shape)};
  return divisor == 1 ? w : w / static_cast<double>(divisor);
}

// Uniform in [0, 1), or (0, 1] when `from_one`, with as many bits as the dtype has; so that nothing
// rounds up to the excluded end.
Expr uniform_unit(Call& c, const Shape& shape, DType type, bool from_one = false) {
  const double shift = from_one ? 1 : 0;
  if (type == DType::kF64) {
    const Expr high = words(c, shape, 1), low = words(c, shape, 1 << 11);
    const Expr bits = high * static_cast<double>(1 << 21) + low;
    return (bits.cast(type) + shift) * std::ldexp(1, -53);
  }
  const int bits = type == DType::kF16 ? 11 : type == DType::kBF16 ? 8 : 24;
  const Expr word = words(c, shape, int64_t{1} << (32 - bits));
  return ((word.cast(DType::kF32) + shift) * std::ldexp(1, -bits)).cast(type);
}

// Standard normal: Box and Muller, "A Note on the Generation of Random Normal Deviates" (1958).
Expr normal_unit(Call& c, const Shape& shape, DType type) {
  const DType compute = compute_type(type);
  const Expr radius = sqrt(log(uniform_unit(c, shape, compute, true)) * -2);
  const Expr angle = uniform_unit(c, shape, compute) * (2 * std::numbers::pi);
  return radius * apply(Op::kCos, angle);
}

DType float_dtype(Call& c, DType fallback) {
  const DType type = c.dtype("dtype", fallback);
  if (!is_float(type)) c.invalid("random floats of a dtype that is none");
  return type;
}
DType dtype_of_self(Call& c) {
  return c.has("self") ? c.b.dtype(c.tensor("self")) : DType::kF32;
}
Shape shape_wanted(Call& c) {
  return c.has("size") ? Shape(c.sizes("size")) : c.b.shape(c.tensor("self"));
}

Values rand(Call& c) {
  const DType type = float_dtype(c, dtype_of_self(c));
  return {uniform_unit(c, shape_wanted(c), type).id};
}
Values randn(Call& c) {
  const DType type = float_dtype(c, dtype_of_self(c));
  return {normal_unit(c, shape_wanted(c), type).cast(type).id};
}
Values uniform(Call& c) {
  const Expr x = tensor(c, "self");
  const double from = c.real("from", 0), to = c.real("to", 1);
  if (!c.ok()) return {};
  const DType compute = compute_type(x.dtype());
  return {(uniform_unit(c, x.shape(), compute) * (to - from) + from).cast(x.dtype()).id};
}
// normal_ and normal_functional: numbers for mean and deviation.
Values normal_like(Call& c) {
  const Expr x = tensor(c, "self");
  const double mean = c.real("mean", 0), deviation = c.real("std", 1);
  if (!c.ok()) return {};
  return {(normal_unit(c, x.shape(), x.dtype()) * deviation + mean).cast(x.dtype()).id};
}
// Mean and deviation may be tensors.
Values normal(Call& c) {
  const Operand mean = c.operand("mean"), deviation = c.operand("std");
  if (!c.ok()) return {};
  const Operand both[] = {mean, deviation};
  const DType type = c.dtype("dtype", to_float_type(result_type(c.b, both)));
  const auto shape_of = [&](const Operand& each) {
    return each.number ? Shape() : c.b.shape(each.id);
  };
  const Shape shape = c.has("size") ? Shape(c.sizes("size"))
                                    : broadcast_shapes(c.b, shape_of(mean), shape_of(deviation));
  const DType compute = compute_type(type);
  const Expr centre{&c.b, materialise(c.b, mean, compute, shape)};
  const Expr spread{&c.b, materialise(c.b, deviation, compute, shape)};
  return {(normal_unit(c, shape, compute) * spread + centre).cast(type).id};
}
Values exponential(Call& c) {
  const Expr x = tensor(c, "self");
  const double rate = c.real("lambd", 1);
  if (!c.ok()) return {};
  const Expr u = uniform_unit(c, x.shape(), compute_type(x.dtype()), true);
  return {(-log(u) / rate).cast(x.dtype()).id};
}

Values randint(Call& c) {
  const int64_t low = c.integer("low", 0), high = c.integer("high");
  const DType type = c.dtype("dtype", c.has("self") ? dtype_of_self(c) : DType::kI64);
  const Shape shape = shape_wanted(c);
  if (!c.ok()) return {};
  int64_t count = 0;
  if (__builtin_sub_overflow(high, low, &count) || count < 1 || count > (int64_t{1} << 32))
    return {c.unsupported("random integers of more than 2^32 or of no values are not covered")};
  const Expr word = words(c, shape, 1);
  const Expr modulus{&c.b, c.b.constant_int(DType::kI64, count)},
      first{&c.b, c.b.constant_int(DType::kI64, low)};
  return {(apply(Op::kRem, word, modulus) + first).cast(type).id};
}

// An order of words is an order of 0 .. n - 1.
Values randperm(Call& c) {
  const Dim count = c.size("n");
  const DType type = c.dtype("dtype", DType::kI64);
  return {c.b.cast(c.b.argsort(c.random_words({count}), false), type)};
}

// True with probability p.
Expr coin(Call& c, const Shape& shape, double p) {
  return uniform_unit(c, shape, DType::kF32) < p;
}

Values bernoulli(Call& c) {
  const Expr x = tensor(c, "self");
  if (!c.ok()) return {};
  if (c.has("p")) {
    const Operand p = c.operand("p");
    if (p.number) return {coin(c, x.shape(), p.number->value).cast(x.dtype()).id};
    const Expr chance = Expr{&c.b, p.id}.cast(DType::kF32);
    return {(uniform_unit(c, x.shape(), DType::kF32) < chance).cast(x.dtype()).id};
  }
  const Expr chance = x.cast(DType::kF32);
  return {(uniform_unit(c, x.shape(), DType::kF32) < chance).cast(x.dtype()).id};
}

struct Dropped {
  Expr value, mask;
};
// x / (1 - p) where the mask, of a shape that broadcasts to x, keeps it.
Dropped drop(Call& c, Expr x, const Shape& mask_shape, double p) {
  const Expr mask = coin(c, mask_shape, 1 - p);
  const Expr scaled = p == 1 ? wide(x) * 0 : wide(x) * (1 / (1 - p));
  return {choose(mask, scaled, 0).cast(x.dtype()), mask};
}

Values dropout(Call& c) {
  const Expr x = tensor(c, "input");
  const double p = c.real("p", 0.5);
  if (!c.ok()) return {};
  if (p < 0 || p > 1) return {c.invalid("a dropout probability outside 0 to 1")};
  if (!c.flag("train", true) || p == 0) return {x.id};
  return {drop(c, x, x.shape(), p).value.id};
}
// Whole channels at a time.
Values feature_dropout(Call& c) {
  const Expr x = tensor(c, "input");
  const double p = c.real("p", 0.5);
  if (!c.ok() || !c.flag("train", true) || p == 0) return {x.id};
  Shape shape = x.shape();
  if (shape.size() < 2) return {c.invalid("feature_dropout of a tensor without channels")};
  for (size_t i = 2; i < shape.size(); ++i) shape[i] = 1;
  return {drop(c, x, shape, p).value.id};
}
Values alpha_dropout(Call& c) {
  const double p = c.real("p", 0.5);
  if (c.flag("train", true) && p != 0)
    return {
        c.unsupported("alpha_dropout in training mode is not covered; call model.eval() before "
                      "torch.export, or use dropout")};
  return {c.tensor("input")};
}
Values native_dropout(Call& c) {
  const Expr x = tensor(c, "input");
  const double p = c.real("p");
  if (!c.ok()) return {};
  if (!c.flag("train", true) || p == 0)
    return {x.id, c.b.broadcast(c.b.constant_int(DType::kBool, 1), x.shape())};
  const Dropped result = drop(c, x, x.shape(), p);
  return {result.value.id, result.mask.id};
}

constexpr Lowering kRandomLowerings[] = {
    {"aten.rand.default", rand},
    {"aten.rand_like.default", rand},
    {"aten.randn.default", randn},
    {"aten.randn_like.default", randn},
    {"aten.uniform.default", uniform},
    {"aten.normal_.default", normal_like},
    {"aten.normal_functional.default", normal_like},
    {"aten.normal.float_float", normal},
    {"aten.normal.Tensor_float", normal},
    {"aten.normal.float_Tensor", normal},
    {"aten.normal.Tensor_Tensor", normal},
    {"aten.exponential.default", exponential},
    {"aten.randint.default", randint},
    {"aten.randint.low", randint},
    {"aten.randint_like.default", randint},
    {"aten.randint_like.low_dtype", randint},
    {"aten.randperm.default", randperm},
    {"aten.bernoulli.default", bernoulli},
    {"aten.bernoulli.p", bernoulli},
    {"aten.bernoulli.Tensor", bernoulli},
    {"aten.bernoulli_.float", bernoulli},
    {"aten.bernoulli_.Tensor", bernoulli},
    {"aten.dropout.default", dropout},
    {"aten.feature_dropout.default", feature_dropout},
    {"aten.alpha_dropout.default", alpha_dropout},
    {"aten.feature_alpha_dropout.default", alpha_dropout},
    {"aten.native_dropout.default", native_dropout},
};

}  // namespace

NodeId dropout_of(Call& c, NodeId x, double p) {
  return drop(c, {&c.b, x}, c.b.shape(x), p).value.id;
}

std::span<const Lowering> random_lowerings() {
  return kRandomLowerings;
}

}  // namespace kiln
