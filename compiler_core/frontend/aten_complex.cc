// Complex numbers: making them, taking them apart, and arithmetic on them.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "compiler_core/frontend/complex_values.h"

namespace kiln {

Expr Complex::joined() const {
  GraphBuilder& b = *re.b;
  if (!b.ok()) return re;
  Shape shape = re.shape();
  shape.emplace_back(1);
  const NodeId both[] = {b.reshape(re.id, shape), b.reshape(im.id, shape)};
  return {&b, b.concat(both, static_cast<int>(shape.size()) - 1)};
}

Complex parts_of(Expr pairs) {
  GraphBuilder& b = *pairs.b;
  if (!b.ok() || pairs.shape().empty() || !pairs.shape().back().is(2)) {
    if (b.ok()) b.fail_with({Code::kInvalidArgument, "is no tensor of pairs", 0});
    return {pairs, pairs};
  }
  Shape shape = pairs.shape();
  const int last = static_cast<int>(shape.size()) - 1;
  shape.pop_back();
  const auto part = [&](int64_t i) {
    return Expr{&b, b.reshape(b.slice(pairs.id, last, i, 1), shape)};
  };
  return {part(0), part(1)};
}

namespace {

Values pairs(Complex x) {
  return {x.joined().id};
}

// The argument, a real tensor among complex ones too, as complex numbers; a number has no shape yet.
Complex complex_of(Call& c, std::string_view name) {
  GraphBuilder& b = c.b;
  if (const auto number = c.complex_number(name))
    return {{&b, b.constant(DType::kF64, number->real())},
            {&b, b.constant(DType::kF64, number->imag())}};
  const Operand operand = c.operand(name);
  if (!c.ok()) return {{&b, kInvalidNode}, {&b, kInvalidNode}};
  if (operand.number) {
    const Expr x{&b, scalar(b, DType::kF32, *operand.number)};
    return {x, x.like(0)};
  }
  const Expr x{&b, operand.id};
  return c.is_complex(name) ? parts_of(x) : Complex{x, x.like(0)};
}

// Both operands with components of the type that they promote to.
struct TwoComplex {
  Complex x, y;
};
TwoComplex two(Call& c, std::string_view first = "self", std::string_view second = "other") {
  TwoComplex both{complex_of(c, first), complex_of(c, second)};
  if (!c.ok()) return both;
  const auto has_type =
      [&](std::string_view name) {  // a number, or an integer, has none of its own
        return !c.complex_number(name) && !c.operand(name).number &&
               is_float(c.b.dtype(c.tensor(name)));
      };
  DType type = DType::kF32;
  if (has_type(first)) type = both.x.re.dtype();
  if (has_type(second))
    type = has_type(first) ? promote_types(type, both.y.re.dtype()) : both.y.re.dtype();
  for (Expr* each : {&both.x.re, &both.x.im, &both.y.re, &both.y.im}) *each = each->cast(type);
  return both;
}

Values add(Call& c, bool minus) {
  const TwoComplex v = two(c);
  const double factor = c.real("alpha", 1) * (minus ? -1 : 1);
  if (!c.ok()) return {};
  // The parts broadcast one by one, so that both have the shape of the result.
  return pairs({v.x.re + v.y.re * factor, v.x.im + v.y.im * factor});
}
Values plus(Call& c) {
  return add(c, false);
}
Values minus(Call& c) {
  return add(c, true);
}
Values minus_from(Call& c) {
  const TwoComplex v = two(c);
  const double factor = c.real("alpha", 1);
  if (!c.ok()) return {};
  return pairs({v.y.re - v.x.re * factor, v.y.im - v.x.im * factor});
}
Values product_complex(Call& c) {
  const TwoComplex v = two(c);
  if (!c.ok()) return {};
  if (!c.is_complex("other")) return pairs({v.x.re * v.y.re, v.x.im * v.y.re});
  if (!c.is_complex("self")) return pairs({v.x.re * v.y.re, v.x.re * v.y.im});
  return pairs(v.x * v.y);
}
Complex quotient(Complex x, Complex y) {
  const Expr square = y.re * y.re + y.im * y.im;
  const Complex top = x * Complex{y.re, -y.im};
  return {top.re / square, top.im / square};
}
Values divide_complex(Call& c) {
  const TwoComplex v = two(c);
  if (!c.ok()) return {};
  if (!c.is_complex("other")) return pairs({v.x.re / v.y.re, v.x.im / v.y.re});
  return pairs(quotient(v.x, v.y));
}
Values reciprocal(Call& c) {
  const Complex x = complex_of(c, "self");
  return c.ok() ? pairs(quotient({x.re.like(1), x.re.like(0)}, x)) : Values();
}
Values negative(Call& c) {
  return {(-tensor(c, "self")).id};
}

template <bool all>
Values same(Call& c) {
  const TwoComplex v = two(c);
  if (!c.ok()) return {};
  return {
      (all ? (v.x.re == v.y.re) & (v.x.im == v.y.im) : (v.x.re != v.y.re) | (v.x.im != v.y.im)).id};
}

Expr magnitude(Complex x) {
  // Scaled, so that no square overflows or vanishes.
  const Expr re = abs(x.re), im = abs(x.im), most = max(re, im);
  const Expr by = choose(most == 0, 1, most);
  const Expr a = re / by, b = im / by;
  return choose(abs(most) == HUGE_VAL, most, most * sqrt(a * a + b * b));
}
Expr direction(Complex x) {
  return apply(Op::kAtan2, x.im, x.re);
}
Values absolute(Call& c) {
  const Complex x = complex_of(c, "self");
  return {c.ok() ? magnitude(x).id : kInvalidNode};
}
Values angle(Call& c) {
  const Expr x = tensor(c, "self");
  if (!c.ok()) return {};
  if (c.is_complex("self")) return {direction(parts_of(x)).id};
  const Expr real = x.cast(to_float_type(x.dtype()));
  const Expr turned = choose(real < 0, std::numbers::pi, real.like(0));
  return {choose(real != real, real, turned).id};
}
Values exponential_complex(Call& c) {
  const Complex x = complex_of(c, "self");
  if (!c.ok()) return {};
  const Expr scale = exp(x.re);
  return pairs({scale * apply(Op::kCos, x.im), scale * apply(Op::kSin, x.im)});
}
Values logarithm(Call& c) {
  const Complex x = complex_of(c, "self");
  return c.ok() ? pairs({log(magnitude(x)), direction(x)}) : Values();
}
Values square(Call& c) {
  const Complex x = complex_of(c, "self");
  return c.ok() ? pairs(x * x) : Values();
}
// A power with a real exponent: the magnitude's power, turned as often.
Values raised(Call& c, double exponent) {
  if (!c.ok()) return {};
  if (exponent == 2) return square(c);
  const Complex x = complex_of(c, "self");
  if (!c.ok()) return {};
  const Expr length = magnitude(x), turn = direction(x) * exponent;
  const Expr scale = apply(Op::kPow, length, length.like(exponent));
  return pairs({scale * apply(Op::kCos, turn), scale * apply(Op::kSin, turn)});
}
Values power(Call& c) {
  return raised(c, c.real("exponent"));
}
Values square_root(Call& c) {
  return raised(c, 0.5);
}
// A number's direction, of length 1; 0 of 0.
Values sign_of(Call& c) {
  const Complex x = complex_of(c, "self");
  if (!c.ok()) return {};
  const Expr length = magnitude(x), by = choose(length == 0, 1, length);
  return pairs({x.re / by, x.im / by});
}
Values adjoint(Call& c) {
  GraphBuilder& b = c.b;
  const Complex x = complex_of(c, "self");
  const int rank = c.ok() ? static_cast<int>(x.re.shape().size()) : 0;
  if (rank < 2) return {c.invalid("an adjoint of no matrix")};
  const auto turned = [&](Expr part) {
    return Expr{&b, swap_axes(b, part.id, rank - 2, rank - 1)};
  };
  return pairs({turned(x.re), -turned(x.im)});
}

// A vector is a row on the left and a column on the right.
Values matrix_products(Call& c) {
  GraphBuilder& b = c.b;
  TwoComplex v = two(c, "self", c.has("mat2") ? "mat2" : "other");
  if (!c.ok()) return {};
  const bool row = v.x.re.shape().size() == 1, column = v.y.re.shape().size() == 1;
  if (v.x.re.shape().empty() || v.y.re.shape().empty())
    return {c.invalid("a matrix product of a scalar")};
  const auto as_matrix = [](Complex& x, bool upright) {
    const Dim size = x.re.shape()[0];
    const Shape shape = upright ? Shape{size, 1} : Shape{1, size};
    x = {x.re.reshape(shape), x.im.reshape(shape)};
  };
  if (row) as_matrix(v.x, false);
  if (column) as_matrix(v.y, true);
  const auto times = [&](Expr x, Expr y) { return Expr{&b, matrix_product(b, x.id, y.id)}; };
  Complex product{times(v.x.re, v.y.re) - times(v.x.im, v.y.im),
                  times(v.x.re, v.y.im) + times(v.x.im, v.y.re)};
  if (!c.ok()) return {};
  Shape shape = product.re.shape();
  if (column) shape.pop_back();
  if (row) shape.erase(shape.end() - (column ? 1 : 2));
  return pairs({product.re.reshape(shape), product.im.reshape(shape)});
}

// Casts: between precisions, of reals to complex numbers, and of these to their real parts.
Values convert_complex(Call& c) {
  const Expr x = tensor(c, "self");
  if (!c.ok()) return {};
  const std::optional<DType> component = c.complex_dtype("dtype");
  if (c.is_complex("self")) {
    if (component) return {x.cast(*component).id};
    if (!c.has("dtype")) return {x.id};
    return {parts_of(x).re.cast(c.dtype("dtype", x.dtype())).id};
  }
  if (!component) return {c.unsupported("this conversion of complex numbers is not covered")};
  const Expr real = x.cast(*component);
  return pairs({real, real.like(0)});
}

Values itself(Call& c) {
  return {c.tensor("self")};
}
Values real_part(Call& c) {
  const Expr x = tensor(c, "self");
  return {c.ok() && c.is_complex("self") ? parts_of(x).re.id : x.id};
}
Values imaginary_part(Call& c) {
  const Expr x = tensor(c, "self");
  if (!c.ok() || !c.is_complex("self")) return {c.invalid("is of real numbers")};
  return {parts_of(x).im.id};
}
Values conjugate(Call& c) {
  const Expr x = tensor(c, "self");
  if (!c.ok() || !c.is_complex("self")) return {x.id};
  const Complex v = parts_of(x);
  return pairs({v.re, -v.im});
}
Values from_parts(Call& c) {
  const Expr re = tensor(c, "real"), im = tensor(c, "imag");
  if (!c.ok()) return {};
  const Shape shape = broadcast_shapes(c.b, re.shape(), im.shape());
  return pairs({re.broadcast(shape), im.broadcast(shape)});
}
Values polar(Call& c) {
  const Expr length = tensor(c, "abs"), turn = tensor(c, "angle");
  if (!c.ok()) return {};
  return pairs({length * apply(Op::kCos, turn), length * apply(Op::kSin, turn)});
}

// These exist for complex numbers only.
constexpr Lowering kComplexLowerings[] = {
    {"aten.view_as_complex.default", itself},
    {"aten.view_as_real.default", itself},
    {"aten.real.default", real_part},
    {"aten.imag.default", imaginary_part},
    {"aten.complex.default", from_parts},
    {"aten.polar.default", polar},
    {"aten.angle.default", angle},
    {"aten.conj.default", conjugate},
    {"aten._conj.default", conjugate},
    {"aten.conj_physical.default", conjugate},
    {"aten._conj_physical.default", conjugate},
};

// Forms for complex numbers of ops that real numbers have too.
constexpr Lowering kForms[] = {
    {"aten.add.Tensor", plus},
    {"aten.add.Scalar", plus},
    {"aten.sub.Tensor", minus},
    {"aten.sub.Scalar", minus},
    {"aten.rsub.Scalar", minus_from},
    {"aten.mul.Tensor", product_complex},
    {"aten.mul.Scalar", product_complex},
    {"aten.div.Tensor", divide_complex},
    {"aten.div.Scalar", divide_complex},
    {"aten.neg.default", negative},
    {"aten.reciprocal.default", reciprocal},
    {"aten.eq.Tensor", same<true>},
    {"aten.ne.Tensor", same<false>},
    {"aten.abs.default", absolute},
    {"aten.exp.default", exponential_complex},
    {"aten.log.default", logarithm},
    {"aten.square.default", square},
    {"aten.pow.Tensor_Scalar", power},
    {"aten.sqrt.default", square_root},
    {"aten.sgn.default", sign_of},
    {"aten.mH.default", adjoint},
    {"aten.adjoint.default", adjoint},
    {"aten.mm.default", matrix_products},
    {"aten.bmm.default", matrix_products},
    {"aten.matmul.default", matrix_products},
    {"aten.to.dtype", convert_complex},
    {"aten.to.dtype_layout", convert_complex},
    {"aten.to.device", convert_complex},
    {"aten._to_copy.default", convert_complex},
};

// Ops that move elements, or are linear in them with real factors: done to each part.
constexpr auto kByParts = std::to_array<std::string_view>({
    "aten.cat.default",
    "aten.stack.default",
    "aten.clone.default",
    "aten.contiguous.default",
    "aten.index.Tensor",
    "aten.index_select.default",
    "aten.gather.default",
    "aten.flip.default",
    "aten.roll.default",
    "aten.repeat.default",
    "aten.expand_as.default",
    "aten.view_as.default",
    "aten.reshape_as.default",
    "aten.sum.default",
    "aten.sum.dim_IntList",
    "aten.mean.default",
    "aten.mean.dim",
    "aten.cumsum.default",
    "aten.where.self",
    "aten.tril.default",
    "aten.triu.default",
    "aten.resolve_conj.default",
    "aten.resolve_neg.default",
    "aten._unsafe_view.default",
    "aten.fft_fftshift.default",
    "aten.fft_ifftshift.default",
    "aten.lift_fresh_copy.default",
    "aten.zeros_like.default",
    "aten.squeeze_.dim",
    "aten.repeat_interleave.self_int",
    "aten.slice_scatter.default",
    "aten.select_scatter.default",
});

// Ops that look at magnitudes only.
constexpr auto kOfMagnitudes = std::to_array<std::string_view>({
    "aten.linalg_vector_norm.default",
    "aten.norm.Scalar",
    "aten.norm.ScalarOpt_dim",
    "aten.linalg_norm.default",
});

Values by_parts(Call& c, const Lowering& lowering) {
  std::array<Values, 2> parts;
  for (const auto part : {Call::Part::kReal, Call::Part::kImaginary}) {
    c.read(part);
    parts[part == Call::Part::kImaginary] = lowering.lower(c);
  }
  c.read(Call::Part::kAll);
  if (!c.ok() || parts[0].size() != parts[1].size()) return {};
  Values results;
  for (size_t i = 0; i < parts[0].size(); ++i)
    results.push_back(Complex{{&c.b, parts[0][i]}, {&c.b, parts[1][i]}}.joined().id);
  return results;
}

template <class List>
const Lowering* among(const List& list, std::string_view op) {
  const auto found = std::find_if(std::begin(list), std::end(list),
                                  [&](const Lowering& each) { return each.name == op; });
  return found == std::end(list) ? nullptr : &*found;
}

}  // namespace

std::span<const Lowering> complex_lowerings() {
  return kComplexLowerings;
}

std::optional<Values> lower_complex(Call& call, std::string_view op, const Lowering* lowering) {
  if (const Lowering* form = among(kForms, op)) return form->lower(call);
  if (lowering == nullptr) return std::nullopt;
  if (among(complex_lowerings(), op) != nullptr || among(fourier_lowerings(), op) != nullptr)
    return lowering->lower(call);
  if (std::ranges::find(kOfMagnitudes, op) != kOfMagnitudes.end()) {
    const NodeId lengths = magnitude(complex_of(call, "self")).id;
    call.substitute(call.first_tensor(), lengths);
    return lowering->lower(call);
  }
  if (is_view_op(op) || std::find(kByParts.begin(), kByParts.end(), op) != kByParts.end())
    return by_parts(call, *lowering);
  return std::nullopt;
}

}  // namespace kiln
