// Fourier transforms as products with matrices of cosines and sines, which the program makes where it
// runs: n^2 work for n points, or two such steps where they are many. Exact angles: they are taken modulo
// a turn in integers.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "compiler_core/frontend/complex_values.h"

namespace kiln {
namespace {

constexpr int64_t kMostPoints = 4096;
constexpr int64_t kMostSummed = 512;  // sums of more lose some last places of f32

enum class Kind { kRealToComplex, kComplexToComplex, kComplexToReal };

struct Transform {
  Kind kind = Kind::kComplexToComplex;
  bool inverse = false;  // exp(+i...) instead of exp(-i...)
  int64_t points = 0;    // of the longer side: n of the formulas
  double scale = 1;
  bool whole = false;  // of real numbers: all of the spectrum, not its first half
};

int64_t half_of(int64_t points) {
  return points / 2 + 1;
}

// How often frequency k of half a spectrum counts: the other half is its mirror image.
Expr weight_of(Expr k, int64_t n, DType type) {
  Expr alone = k == 0;
  if (n % 2 == 0) alone = alone | (k == static_cast<double>(n) / 2);
  return 2 - alone.cast(type);
}

// The matrix [inputs * input parts, outputs * output parts] of `t`: element (j, p), (k, q) is what part
// p of input j adds to part q of output k: scale * cos(turn * (+-j k) / n + (q - p) * quarter turn).
Expr matrix_of(GraphBuilder& b, const Transform& t, DType type) {
  const int64_t n = t.points;
  const int64_t in_parts = t.kind == Kind::kRealToComplex ? 1 : 2;
  const int64_t out_parts = t.kind == Kind::kComplexToReal ? 1 : 2;
  const int64_t inputs = t.kind == Kind::kComplexToReal ? half_of(n) : n;
  const int64_t outputs = t.kind == Kind::kRealToComplex && !t.whole ? half_of(n) : n;
  const Shape shape = {inputs, in_parts, outputs, out_parts};
  const auto at = [&](size_t axis) { return Expr{&b, coordinate(b, shape, axis)}; };
  // In quarters of a step, 4 n to the turn; never negative.
  const Expr steps = apply(Op::kRem, at(0) * at(2), at(0).like(static_cast<double>(n)));
  const Expr turned = t.inverse ? steps.like(static_cast<double>(n)) - steps : steps;
  const Expr quarters = turned * 4 + (at(3) - at(1) + 4) * static_cast<double>(n);
  const Expr within = apply(Op::kRem, quarters, quarters.like(static_cast<double>(4 * n)));
  const Expr angle = within.cast(DType::kF64) * (std::numbers::pi / (2.0 * static_cast<double>(n)));
  Expr value = apply(Op::kCos, angle) * t.scale;
  if (t.kind == Kind::kComplexToReal) {
    value = value * weight_of(at(0), n, DType::kF64);
  }
  return value.cast(type).reshape({inputs * in_parts, outputs * out_parts});
}

// x [..., inputs(, 2)], the axis last.
Expr transformed(Expr x, const Transform& t) {
  GraphBuilder& b = *x.b;
  Shape shape = x.shape();
  Dim width = shape.back();
  shape.pop_back();
  if (t.kind != Kind::kRealToComplex) {
    width = width * shape.back();
    shape.pop_back();
  }
  const Expr rows = x.reshape({numel(shape), width});
  const NodeId product = b.matmul(rows.id, matrix_of(b, t, x.dtype()).id);
  if (t.kind == Kind::kComplexToReal) {
    shape.emplace_back(t.points);
  } else {
    const bool half = t.kind == Kind::kRealToComplex && !t.whole;
    shape.emplace_back(half ? half_of(t.points) : t.points);
    shape.emplace_back(2);
  }
  return {&b, b.reshape(product, shape)};
}

// The greatest divisor up to the root of n.
int64_t divisor_of(int64_t n) {
  auto divisor = static_cast<int64_t>(std::sqrt(static_cast<double>(n)));
  while (n % divisor != 0) --divisor;
  return divisor;
}

// exp(-+ i turn j k / n) for j < rows, k < columns.
Complex turns(GraphBuilder& b, const Transform& t, int64_t rows, int64_t columns, DType type) {
  const Shape shape = {rows, columns};
  const Expr steps = Expr{&b, coordinate(b, shape, 0)} * Expr{&b, coordinate(b, shape, 1)};
  const Expr angle =
      steps.cast(DType::kF64) * (2 * std::numbers::pi / static_cast<double>(t.points));
  const Expr sine = apply(Op::kSin, angle).cast(type);
  return {apply(Op::kCos, angle).cast(type), t.inverse ? sine : -sine};
}

// The same as transformed(), of n = first * second points: with j = j1 second + j2 and k = k1 + first k2
// the transform is one over j1, a turn of each (j2, k1), and one over j2 (Cooley and Tukey).
Expr in_two_steps(Expr x, const Transform& t) {
  GraphBuilder& b = *x.b;
  const int64_t n = t.points, first = divisor_of(n), second = n / first;
  const bool real = t.kind == Kind::kRealToComplex;
  const DType type = x.dtype();
  Shape shape = x.shape();
  shape.resize(shape.size() - (real ? 1 : 2));
  const Dim batch = numel(shape);
  if (t.kind ==
      Kind::kComplexToReal) {  // the real part of the transform of half a spectrum and zeros
    const int64_t half = half_of(n);
    const Expr weights = weight_of(Expr{&b, b.iota(DType::kI64, half)}, n, type);
    const Expr counted = x.reshape({batch, half, 2}) * weights.reshape({half, 1});
    x = {&b, b.pad(counted.id, {0, 0, 0}, {0, n - half, 0}, constant_bits(type, 0))};
  }
  const auto swapped = [&](Expr y, bool pairs) {
    return Expr{&b,
                b.permute(y.id, pairs ? std::vector<int>{0, 2, 1, 3} : std::vector<int>{0, 2, 1})};
  };
  Shape split = {batch, first, second};
  if (!real) split.emplace_back(2);
  const Transform over_first{real ? t.kind : Kind::kComplexToComplex, t.inverse, first, 1, real};
  const Complex once = parts_of(transformed(swapped(x.reshape(split), !real), over_first));
  const Expr turned = (once * turns(b, t, second, first, type)).joined();
  const Transform over_second{Kind::kComplexToComplex, t.inverse, second, t.scale};
  const Expr twice = swapped(transformed(swapped(turned, true), over_second), true);
  Expr result = twice.reshape({batch, n, 2});
  if (t.kind == Kind::kComplexToReal) {
    result = parts_of(result).re;
    shape.emplace_back(n);
  } else {
    if (real) result = {&b, b.slice(result.id, 1, 0, half_of(n))};
    shape.emplace_back(real ? half_of(n) : n);
    shape.emplace_back(2);
  }
  return result.reshape(shape);
}

// Exactly `size` elements along `axis`: the first ones, or zeros behind them.
Expr resized(Call& c, Expr x, int axis, int64_t size) {
  GraphBuilder& b = c.b;
  const Dim have = x.shape()[static_cast<size_t>(axis)];
  if (have.is(size)) return x;
  if (!have.is_constant()) {
    c.unsupported("a Fourier transform of a symbolic size is not covered");
    return x;
  }
  if (have.constant() > size) return {&b, b.slice(x.id, axis, 0, size)};
  std::vector<Dim> low(x.shape().size(), Dim(0)), high = low;
  high[static_cast<size_t>(axis)] = size - have.constant();
  return {&b, b.pad(x.id, low, high, constant_bits(x.dtype(), 0))};
}

// The transform along `axis` of a tensor of `rank` axes, not counting that of pairs.
Expr along(Call& c, Expr x, int axis, size_t rank, Transform t) {
  if (t.points < 1 || t.points > kMostPoints) {
    c.unsupported("a Fourier transform of " + std::to_string(t.points) +
                  " points is not covered: of at most " + std::to_string(kMostPoints) +
                  "; compute it outside the program");
    return x;
  }
  const bool pairs = t.kind != Kind::kRealToComplex;
  x = resized(c, x, axis, t.kind == Kind::kComplexToReal ? half_of(t.points) : t.points);
  if (!c.ok()) return x;
  const int last = static_cast<int>(rank) - 1;
  // The axis to the end, before that of pairs.
  std::vector<int> order(rank + (pairs ? 1 : 0));
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin() + axis, order.begin() + axis + 1, order.begin() + last + 1);
  GraphBuilder& b = c.b;
  const bool many = t.points > kMostSummed && divisor_of(t.points) > 1;
  const Expr rows{&b, b.permute(x.id, order)};
  const Expr result = many ? in_two_steps(rows, t) : transformed(rows, t);
  std::vector<int> back(rank + (t.kind != Kind::kComplexToReal ? 1 : 0));
  std::iota(back.begin(), back.end(), 0);
  std::rotate(back.begin() + axis, back.begin() + last, back.begin() + last + 1);
  return {&b, b.permute(result.id, back)};
}

double scale_of(Call& c, std::string_view norm, bool inverse, int64_t points) {
  const auto n = static_cast<double>(points);
  if (norm == "ortho") return 1 / std::sqrt(n);
  if (norm == "forward") return inverse ? 1 : 1 / n;
  if (norm != "backward") c.invalid("there is no norm '" + std::string(norm) + "'");
  return inverse ? 1 / n : 1;
}

// Complex, of a real tensor too.
Expr as_pairs(Call& c, Expr x) {
  if (c.is_complex("self")) return x;
  const Expr real = x.cast(to_float_type(x.dtype()));
  return Complex{real, real.like(0)}.joined();
}

struct Axes {
  std::vector<int> axes;
  std::vector<int64_t> points;  // of the result, where it is real; else of either side
};

int64_t known(Call& c, const Dim& size) {
  if (size.is_constant()) return size.constant();
  c.unsupported("a Fourier transform of a symbolic size is not covered");
  return 1;
}

// `shape`: without the axis of pairs. Sizes and axes as torch.fft's functions have them.
Axes axes_of(Call& c, Shape shape, int count, bool to_real) {
  const size_t rank = shape.size();
  const std::string_view size = count == 1 ? "n" : "s";
  Axes result;
  if (count == 1) {
    result.axes = {c.axis("dim", rank, -1)};
  } else if (c.has("dim")) {
    for (const Dim& each : c.sizes("dim")) {
      const int64_t axis = known(c, each), from = static_cast<int64_t>(rank);
      if (axis < -from || axis >= from) c.invalid("has no such axis");
      result.axes.push_back(static_cast<int>(axis < 0 ? axis + from : axis));
    }
  } else {
    const size_t sizes = c.is_list("s") ? c.sizes("s").size() : count == 2 ? 2 : rank;
    for (size_t i = sizes; i > 0; --i) result.axes.push_back(static_cast<int>(rank - i));
  }
  if (!c.ok()) return result;
  std::vector<Dim> given;
  if (c.is_list(size)) given = c.sizes(size);
  if (count == 1 && c.has("n")) given = {c.size("n")};
  for (size_t i = 0; i < result.axes.size(); ++i) {
    const Dim have = shape[static_cast<size_t>(result.axes[i])];
    const bool chosen = i < given.size() && !given[i].is(-1);
    int64_t points = known(c, chosen ? given[i] : have);
    if (!chosen && to_real && i + 1 == result.axes.size()) points = 2 * (points - 1);
    result.points.push_back(points);
  }
  return result;
}

// torch.fft's functions over `count` axes (0: any number).
template <Kind kind, bool inverse, int count>
Values transform(Call& c) {
  Expr x = tensor(c, "self");
  if (!c.ok()) return {};
  if (kind != Kind::kRealToComplex) x = as_pairs(c, x);
  if (kind == Kind::kRealToComplex) x = x.cast(to_float_type(x.dtype()));
  Shape shape = x.shape();
  if (kind != Kind::kRealToComplex) shape.pop_back();
  const size_t rank = shape.size();
  if (rank == 0 || is_half(x.dtype()))
    return {c.unsupported("a Fourier transform of a scalar, or of halves, is not covered")};
  const Axes a = axes_of(c, shape, count, kind == Kind::kComplexToReal);
  const std::string_view norm = c.text("norm", "backward");
  if (!c.ok() || a.axes.empty()) return {x.id};
  const auto step = [&](size_t i, Kind what) {
    const Transform t{what, inverse, a.points[i], scale_of(c, norm, inverse, a.points[i])};
    x = along(c, x, a.axes[i], rank, t);
    return c.ok();
  };
  // The real side is the last axis: first when it comes in, last when it goes out.
  const size_t last = a.axes.size() - 1;
  if (kind == Kind::kRealToComplex && !step(last, kind)) return {};
  const size_t complex = kind == Kind::kComplexToComplex ? last + 1 : last;
  for (size_t i = 0; i < complex; ++i)
    if (!step(i, Kind::kComplexToComplex)) return {};
  if (kind == Kind::kComplexToReal && !step(last, kind)) return {};
  return {x.id};
}

// The ops that torch.fft's functions are made of: normalization 1 divides by the root of the number of
// points, 2 by the number.
template <Kind kind>
Values primitive(Call& c) {
  Expr x = tensor(c, "self");
  if (!c.ok()) return {};
  const bool pairs = kind != Kind::kRealToComplex;
  const size_t rank = x.shape().size() - (pairs ? 1 : 0);
  const bool inverse =
      kind == Kind::kComplexToReal || !c.flag(pairs ? "forward" : "onesided", true);
  const int64_t normalisation = c.integer("normalization");
  std::vector<int> axes;
  for (const Dim& each : c.sizes("dim")) {
    const int64_t axis = known(c, each), from = static_cast<int64_t>(rank);
    if (axis < -from || axis >= from) return {c.invalid("has no such axis")};
    axes.push_back(static_cast<int>(axis < 0 ? axis + from : axis));
  }
  if (!c.ok()) return {};
  if (kind == Kind::kRealToComplex && inverse)
    return {c.unsupported("the whole spectrum of a real tensor is not covered: take onesided")};
  // The last axis listed is the real side's.
  for (size_t i = axes.size(); i > 0; --i) {
    const size_t k = kind == Kind::kComplexToReal ? axes.size() - i : i - 1;
    const bool real_side = kind != Kind::kComplexToComplex && k + 1 == axes.size();
    const int64_t points = real_side && kind == Kind::kComplexToReal
                               ? c.integer("last_dim_size")
                               : known(c, x.shape()[static_cast<size_t>(axes[k])]);
    const auto n = static_cast<double>(points);
    const double scale = normalisation == 1 ? 1 / std::sqrt(n) : normalisation == 2 ? 1 / n : 1;
    if (!c.ok()) return {};
    x = along(c, x, axes[k], rank,
              {real_side ? kind : Kind::kComplexToComplex, inverse, points, scale});
    if (!c.ok()) return {};
  }
  return {x.id};
}

// Frames of n_fft elements, hop_length apart, weighted by the window, and the spectrum of each:
// [..., frequencies, frames].
Values stft(Call& c) {
  GraphBuilder& b = c.b;
  Expr x = tensor(c, "self");
  const int64_t points = c.integer("n_fft"), hop = c.integer("hop_length", points / 4);
  const int64_t width = c.integer("win_length", points);
  if (!c.ok()) return {};
  if (c.is_complex("self") || !c.flag("onesided", true) || x.shape().empty() ||
      x.shape().size() > 2 || points < 1 || hop < 1 || width < 1 || width > points ||
      !x.shape().back().is_constant())
    return {c.unsupported(
        "this form of stft is not covered: onesided, of a real signal of known length")};
  const bool batched = x.shape().size() == 2;
  if (c.flag("center", false))
    return {c.unsupported("stft that pads itself is not covered: pad first")};
  const int64_t length = x.shape().back().constant(), frames = (length - points) / hop + 1;
  if (length < points) return {c.invalid("has fewer elements than a frame")};
  const Dim batch = batched ? x.shape()[0] : Dim(1);
  Expr framed{&b,
              b.view(x.reshape({batch, length}).id, {batch, frames, points}, {length, hop, 1}, 0)};
  if (c.has("window")) {
    Expr window = tensor(c, "window").cast(x.dtype());
    const int64_t left = (points - width) / 2;
    if (width < points)
      window = {&b, b.pad(window.id, {Dim(left)}, {Dim(points - width - left)},
                          constant_bits(x.dtype(), 0))};
    framed = framed * window;
  }
  const double scale = c.flag("normalized", false) ? 1 / std::sqrt(static_cast<double>(points)) : 1;
  const Expr spectrum = along(c, framed, 2, 3, {Kind::kRealToComplex, false, points, scale});
  if (!c.ok()) return {};
  const Expr turned{&b, b.permute(spectrum.id, {0, 2, 1, 3})};
  Shape shape = turned.shape();
  if (!batched) shape.erase(shape.begin());
  return {turned.reshape(shape).id};
}

// k / (n d), of the first half and then of the negative ones, or of the first half alone.
template <bool halved>
Values frequencies(Call& c) {
  const int64_t n = c.integer("n");
  const double d = c.real("d", 1);
  const DType type = c.dtype("dtype", DType::kF32);
  if (!c.ok() || n < 1) return {c.invalid("has no frequencies")};
  const Expr k{&c.b, c.b.iota(DType::kI64, halved ? half_of(n) : n)};
  const int64_t positive = (n + 1) / 2;
  const Expr at =
      halved ? k : choose(k < static_cast<double>(positive), k, k - static_cast<double>(n));
  return {(at.cast(DType::kF64) / (static_cast<double>(n) * d)).cast(type).id};
}

// a - b cos(turn) + c cos(2 turn) along the window; a periodic one ends a step earlier.
struct Cosines {
  double a = 0, b = 0, c = 0;
};
Values window(Call& c, Cosines weights) {
  const int64_t length = c.integer("window_length");
  const DType type = c.dtype("dtype", DType::kF32);
  const bool periodic = c.flag("periodic", true);
  if (!c.ok() || length < 0) return {c.invalid("a window of negative length")};
  const Expr k = Expr{&c.b, c.b.iota(DType::kI64, length)}.cast(DType::kF64);
  if (length == 1) return {k.like(1).cast(type).id};
  const Expr turn =
      k * (2 * std::numbers::pi / static_cast<double>(periodic ? length : length - 1));
  const Expr once = apply(Op::kCos, turn) * -weights.b + weights.a;
  const Expr value = weights.c == 0 ? once : once + apply(Op::kCos, turn * 2) * weights.c;
  return {value.cast(type).id};
}
Values hann_window(Call& c) {
  return window(c, {0.5, 0.5, 0});
}
Values hamming_window(Call& c) {
  return window(c, {c.real("alpha", 0.54), c.real("beta", 0.46), 0});
}
Values blackman_window(Call& c) {
  return window(c, {0.42, 0.5, 0.08});
}

constexpr Lowering kFourierLowerings[] = {
    {"aten.fft_fftfreq.default", frequencies<false>},
    {"aten.fft_rfftfreq.default", frequencies<true>},
    {"aten.fft_hfft.default", transform<Kind::kComplexToReal, false, 1>},
    {"aten.fft_ihfft.default", transform<Kind::kRealToComplex, true, 1>},
    {"aten.hann_window.default", hann_window},
    {"aten.hann_window.periodic", hann_window},
    {"aten.hamming_window.default", hamming_window},
    {"aten.hamming_window.periodic", hamming_window},
    {"aten.hamming_window.periodic_alpha", hamming_window},
    {"aten.hamming_window.periodic_alpha_beta", hamming_window},
    {"aten.blackman_window.default", blackman_window},
    {"aten.blackman_window.periodic", blackman_window},

    {"aten.fft_fft.default", transform<Kind::kComplexToComplex, false, 1>},
    {"aten.fft_ifft.default", transform<Kind::kComplexToComplex, true, 1>},
    {"aten.fft_fft2.default", transform<Kind::kComplexToComplex, false, 2>},
    {"aten.fft_ifft2.default", transform<Kind::kComplexToComplex, true, 2>},
    {"aten.fft_fftn.default", transform<Kind::kComplexToComplex, false, 0>},
    {"aten.fft_ifftn.default", transform<Kind::kComplexToComplex, true, 0>},
    {"aten.fft_rfft.default", transform<Kind::kRealToComplex, false, 1>},
    {"aten.fft_rfft2.default", transform<Kind::kRealToComplex, false, 2>},
    {"aten.fft_rfftn.default", transform<Kind::kRealToComplex, false, 0>},
    {"aten.fft_irfft.default", transform<Kind::kComplexToReal, true, 1>},
    {"aten.fft_irfft2.default", transform<Kind::kComplexToReal, true, 2>},
    {"aten.fft_irfftn.default", transform<Kind::kComplexToReal, true, 0>},
    {"aten._fft_c2c.default", primitive<Kind::kComplexToComplex>},
    {"aten._fft_r2c.default", primitive<Kind::kRealToComplex>},
    {"aten._fft_c2r.default", primitive<Kind::kComplexToReal>},
    {"aten.stft.default", stft},
};

}  // namespace

std::span<const Lowering> fourier_lowerings() {
  return kFourierLowerings;
}

}  // namespace kiln
