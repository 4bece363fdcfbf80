// Images at other sizes: interpolation, padding by reflection and repetition, windows as columns,
// sampling on a grid. Coordinates as ATen's area_pixel_compute_source_index.
#include <algorithm>
#include <cmath>

#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

enum class Method : uint8_t { kNearest, kNearestExact, kLinear, kCubic };

struct Axis {
  int64_t in = 0, out = 0;
  double scale = 1;  // input steps for one output step
  bool align_corners = false;
};

Expr positions(GraphBuilder& b, int64_t count) {
  return Expr{&b, b.iota(DType::kI64, count)};
}
Expr clamped(Expr index, int64_t size) {
  return min(max(index, 0), static_cast<double>(size - 1));
}

// The source coordinate of each output element, in f32 as ATen.
Expr source_of(GraphBuilder& b, const Axis& axis, bool cubic) {
  const Expr at = positions(b, axis.out).cast(DType::kF32);
  if (axis.align_corners) return at * axis.scale;
  const Expr centre = (at + 0.5) * axis.scale - 0.5;
  return cubic ? centre : max(centre, 0);
}

Expr along(Expr v, const Shape& shape, int axis) {
  return {v.b, v.b->broadcast_in(v.id, shape, std::span(&axis, 1))};
}

Expr nearest(Expr x, int axis, const Axis& a, bool exact) {
  GraphBuilder& b = *x.b;
  const Expr at = positions(b, a.out).cast(DType::kF32);
  const Expr source = floor((exact ? at + 0.5 : at) * a.scale);
  return {&b, gather_axis(b, x.id, axis, clamped(source.cast(DType::kI64), a.in).id)};
}

Expr linear(Expr x, int axis, const Axis& a) {
  GraphBuilder& b = *x.b;
  const Expr source = source_of(b, a, false), low = floor(source);
  const Expr index = clamped(low.cast(DType::kI64), a.in);
  const Expr left{&b, gather_axis(b, x.id, axis, index.id)};
  const Expr right{&b, gather_axis(b, x.id, axis, clamped(index + 1, a.in).id)};
  const Expr weight = along((source - low).cast(x.dtype()), left.shape(), axis);
  return left * (1 - weight) + right * weight;
}

// Keys, "Cubic convolution interpolation" (1981), with A = -0.75 as in ATen and OpenCV.
Expr cubic(Expr x, int axis, const Axis& a) {
  constexpr double kA = -0.75;
  GraphBuilder& b = *x.b;
  const Expr source = source_of(b, a, true), low = floor(source);
  const Expr t = (source - low).cast(x.dtype()), base = low.cast(DType::kI64);
  const auto near = [&](Expr d) { return (d * (kA + 2) - (kA + 3)) * d * d + 1; };
  const auto far = [&](Expr d) { return ((d * kA - 5 * kA) * d + 8 * kA) * d - 4 * kA; };
  const Expr weights[] = {far(t + 1), near(t), near(1 - t), far(2 - t)};
  Expr sum = x;
  for (int k = 0; k < 4; ++k) {
    const Expr index = clamped(base + static_cast<double>(k - 1), a.in);
    const Expr tap{&b, gather_axis(b, x.id, axis, index.id)};
    const Expr term = tap * along(weights[k], tap.shape(), axis);
    sum = k == 0 ? term : sum + term;
  }
  return sum;
}

// The output's size and scale for spatial axis `i`, from "output_size" or the scale factors: one
// list in the .vec form, "scales_h" and "scales_w" or "scales" in the others.
Axis axis_of(Call& c, size_t i, size_t spatial, const Dim& size) {
  Axis axis;
  if (!size.is_constant()) {
    c.unsupported("resizing a symbolic size is not covered");
    return axis;
  }
  axis.in = size.constant();
  std::vector<double> factors = c.reals("scale_factors");
  constexpr const char* kNames[] = {"scales_d", "scales_h", "scales_w"};
  const char* name = spatial == 1 ? "scales" : kNames[3 - spatial + i];
  double factor = i < factors.size() ? factors[i] : c.has(name) ? c.real(name) : 0;
  if (c.has("output_size")) {
    const std::vector<Dim> sizes = c.sizes("output_size");
    if (i < sizes.size() && sizes[i].is_constant()) axis.out = sizes[i].constant();
  } else {
    axis.out = static_cast<int64_t>(std::floor(static_cast<double>(axis.in) * factor));
  }
  constexpr int64_t kMost = int64_t{1} << 24;
  if (axis.in < 1 || axis.out < 1 || axis.out > kMost) {
    c.unsupported("resizing from or to an empty or symbolic size is not covered");
    return axis;
  }
  axis.align_corners = c.flag("align_corners", false);
  if (axis.align_corners)
    axis.scale =
        axis.out > 1 ? static_cast<double>(axis.in - 1) / static_cast<double>(axis.out - 1) : 0;
  else
    axis.scale =
        factor > 0 ? 1 / factor : static_cast<double>(axis.in) / static_cast<double>(axis.out);
  return axis;
}

template <Method method>
Values upsample(Call& c) {
  const Expr x = tensor(c, c.has("input") ? "input" : "self");
  const Shape shape = x.shape();
  if (!c.ok() || shape.size() < 3) return {c.invalid("needs an image with batch and channels")};
  // Choosing elements needs no wider dtype.
  constexpr bool kChooses = method == Method::kNearest || method == Method::kNearestExact;
  Expr result = kChooses ? x : wide(x);
  const size_t spatial = shape.size() - 2;
  for (size_t i = 0; i < spatial; ++i) {
    const Axis axis = axis_of(c, i, spatial, shape[2 + i]);
    if (!c.ok()) return {};
    if (axis.in == axis.out && axis.scale == 1) continue;
    const int at = static_cast<int>(2 + i);
    if constexpr (kChooses)
      result = nearest(result, at, axis, method == Method::kNearestExact);
    else
      result = method == Method::kLinear ? linear(result, at, axis) : cubic(result, at, axis);
  }
  return {result.cast(x.dtype()).id};
}

// Filters of the resizes that average what a pixel covers (antialias), at a distance in pixels.
Expr triangle_filter(Expr d) {
  return max(1 - abs(d), 0);
}
Expr cubic_filter(Expr d) {
  constexpr double kA = -0.5;  // as Pillow, unlike the plain bicubic resize
  const Expr a = abs(d);
  const Expr near = (a * (kA + 2) - (kA + 3)) * a * a + 1;
  const Expr far = (((a - 5) * a + 8) * a - 4) * kA;
  return choose(a < 1, near, choose(a < 2, far, 0));
}

// Weights [out, in] of ATen's _compute_indices_min_size_weights_aa, as one product along the axis.
Expr averaged(Expr x, int axis, const Axis& a, bool cubic) {
  GraphBuilder& b = *x.b;
  const double stretch = std::max(a.scale, 1.0), support = (cubic ? 2 : 1) * stretch;
  const Expr centre = (positions(b, a.out).cast(x.dtype()).reshape({a.out, 1}) + 0.5) * a.scale;
  const Expr at = positions(b, a.in).cast(x.dtype()).reshape({1, a.in});
  const auto whole = [](Expr v) { return apply(Op::kTrunc, v); };
  const Expr inside = (at >= whole(centre - support + 0.5)) & (at < whole(centre + support + 0.5));
  const Expr distance = (at - centre + 0.5) / stretch;
  const Expr weights =
      choose(inside, cubic ? cubic_filter(distance) : triangle_filter(distance), 0);
  const Expr even = weights / weights.sum({1});
  const int last = static_cast<int>(x.shape().size()) - 1;
  const NodeId lines = swap_axes(b, x.id, axis, last);
  Shape shape = b.shape(lines);
  const NodeId rows = b.reshape(lines, {Dim(numel(Shape(shape.begin(), shape.end() - 1))), a.in});
  shape.back() = a.out;
  const NodeId product = b.reshape(b.matmul(rows, swap_axes(b, even.id, 0, 1)), shape);
  return {&b, swap_axes(b, product, axis, last)};
}

template <bool cubic>
Values upsample_aa(Call& c) {
  const Expr x = tensor(c, c.has("input") ? "input" : "self");
  const Shape shape = x.shape();
  if (!c.ok() || shape.size() != 4) return {c.invalid("needs an image with batch and channels")};
  Expr result = wide(x);
  // The width first, as ATen.
  for (const size_t i : {size_t{1}, size_t{0}}) {
    const Axis axis = axis_of(c, i, 2, shape[2 + i]);
    if (!c.ok()) return {};
    if (axis.in != axis.out || axis.scale != 1)
      result = averaged(result, static_cast<int>(2 + i), axis, cubic);
  }
  return {result.cast(x.dtype()).id};
}

// Points of [-1, 1] x ... under theta [n, k, k + 1], the last coordinate first: a grid
// [n, ..., k] for grid_sampler.
Values affine_grid_generator(Call& c) {
  GraphBuilder& b = c.b;
  const Expr theta = tensor(c, "theta");
  const std::vector<Dim> size = c.sizes("size");
  const bool align = c.flag("align_corners", false);
  const size_t k = size.size() < 2 ? 0 : size.size() - 2;
  const bool fits = c.ok() && (k == 2 || k == 3) && theta.shape().size() == 3 &&
                    theta.shape()[1].is(static_cast<int64_t>(k)) &&
                    theta.shape()[2].is(static_cast<int64_t>(k) + 1);
  if (!fits) return {c.invalid("affine_grid needs matrices [n, k, k + 1] for k spatial sizes")};
  const Expr m = wide(theta);
  Shape place(k + 2, Dim(1));
  place.front() = theta.shape()[0];
  place.back() = Dim(static_cast<int64_t>(k));
  const auto column = [&](size_t j) {
    return Expr{&b, b.slice(m.id, 2, static_cast<int64_t>(j), 1)}.reshape(place);
  };
  Expr sum = column(k);
  for (size_t j = 0; j < k; ++j) {
    const Dim& count = size[size.size() - 1 - j];
    if (!count.is_constant() || count.constant() < 1)
      return {c.unsupported("affine_grid of a symbolic or empty size is not covered")};
    const auto n = static_cast<double>(count.constant());
    // From edge to edge of the image, or from centre to centre of its corners' pixels.
    const double step = align ? (n > 1 ? 2 / (n - 1) : 0) : 2 / n;
    Shape line(k + 2, Dim(1));
    line[k - j] = count;
    const Expr at = positions(b, count.constant()).cast(m.dtype());
    sum = sum + (at * step - step * (n - 1) / 2).reshape(line) * column(j);
  }
  return {sum.cast(theta.dtype()).id};
}

// Where a padded axis reads: mirrored at its edges, repeated, or around.
enum class Edge : uint8_t { kReflect, kReplicate, kWrap };
Expr padded_positions(GraphBuilder& b, int64_t size, int64_t low, int64_t high, Edge edge) {
  const Expr at = positions(b, low + size + high) - static_cast<double>(low);
  const double last = static_cast<double>(size - 1), count = static_cast<double>(size);
  switch (edge) {
    case Edge::kReflect:
      return last - abs(last - abs(at));
    case Edge::kReplicate:
      return clamped(at, size);
    case Edge::kWrap:
      return choose(at < 0, at + count, choose(at >= count, at - count, at));
  }
  return at;
}

NodeId padded(Call& c, NodeId x, const std::vector<Dim>& pads, Edge edge) {
  GraphBuilder& b = c.b;
  const size_t rank = b.shape(x).size();
  if (!c.ok() || pads.size() % 2 != 0 || pads.size() / 2 > rank)
    return c.invalid("pads do not fit");
  for (size_t i = 0; i < pads.size() / 2 && c.ok(); ++i) {
    const int axis = static_cast<int>(rank - 1 - i);
    const Dim size = b.shape(x)[static_cast<size_t>(axis)];
    if (!size.is_constant() || !pads[2 * i].is_constant() || !pads[2 * i + 1].is_constant())
      return c.unsupported("padding a symbolic size by its elements is not covered");
    const int64_t low = pads[2 * i].constant(), high = pads[2 * i + 1].constant();
    if (low == 0 && high == 0) continue;
    const int64_t most = edge == Edge::kReflect ? size.constant() - 1 : size.constant();
    const bool fits = edge == Edge::kReplicate || (low <= most && high <= most);
    if (!fits || size.constant() < 1 || low < -size.constant() || high < -size.constant() ||
        low > (1 << 24) || high > (1 << 24) || low + high + size.constant() < 0)
      return c.invalid("a pad that is larger than the axis");
    x = gather_axis(b, x, axis, padded_positions(b, size.constant(), low, high, edge).id);
  }
  return x;
}
template <Edge edge>
Values edge_pad(Call& c) {
  const NodeId x = c.tensor("self");
  return {padded(c, x, c.sizes("padding"), edge)};
}
Values pad(Call& c) {
  const std::string_view mode = c.text("mode", "constant");
  if (mode == "constant") return find_lowering("aten.constant_pad_nd.default")->lower(c);
  const NodeId x = c.tensor("self");
  const Edge edge = mode == "reflect"     ? Edge::kReflect
                    : mode == "replicate" ? Edge::kReplicate
                                          : Edge::kWrap;
  if (mode != "reflect" && mode != "replicate" && mode != "circular")
    return {c.invalid("there is no padding mode '" + std::string(mode) + "'")};
  return {padded(c, x, c.sizes("pad"), edge)};
}

struct WindowAxis {
  int64_t size = 0, window = 0, dilation = 1, padding = 0, stride = 1;
  int64_t count() const { return (size + 2 * padding - dilation * (window - 1) - 1) / stride + 1; }
};
std::optional<WindowAxis> window_axis(Call& c, const Dim& size, size_t i) {
  const auto at = [&](const char* name) {
    const std::vector<Dim> list = c.sizes(name);
    return i < list.size() && list[i].is_constant() ? list[i].constant() : int64_t{-1};
  };
  WindowAxis axis{size.is_constant() ? size.constant() : 0, at("kernel_size"), at("dilation"),
                  at("padding"), at("stride")};
  constexpr int64_t kMost = 1 << 20;
  const bool good = c.ok() && axis.size > 0 && axis.window > 0 && axis.dilation > 0 &&
                    axis.padding >= 0 && axis.stride > 0 && axis.size < kMost &&
                    axis.window < kMost && axis.dilation < kMost && axis.padding < kMost &&
                    axis.size + 2 * axis.padding > axis.dilation * (axis.window - 1);
  if (!good) {
    c.unsupported("windows of a symbolic or empty size are not covered");
    return std::nullopt;
  }
  return axis;
}

// Windows of [n, c, h, w] as columns [n, c * kh * kw, places]: one View of the padded image.
Values im2col(Call& c) {
  GraphBuilder& b = c.b;
  NodeId x = c.tensor("self");
  Shape shape = b.shape(x);
  const bool single = shape.size() == 3;
  if (single) shape.insert(shape.begin(), 1);
  if (!c.ok() || shape.size() != 4) return {c.invalid("needs an image")};
  const auto h = window_axis(c, shape[2], 0), w = window_axis(c, shape[3], 1);
  if (!h || !w) return {};
  x = b.pad(b.reshape(x, shape), {0, 0, h->padding, w->padding}, {0, 0, h->padding, w->padding},
            constant_bits(b.dtype(x), 0));
  const std::vector<Dim> strides = contiguous_strides(b.shape(x));
  const NodeId windows =
      b.view(x, {shape[0], shape[1], h->window, w->window, h->count(), w->count()},
             {strides[0], strides[1], strides[2] * Dim(h->dilation), strides[3] * Dim(w->dilation),
              strides[2] * Dim(h->stride), strides[3] * Dim(w->stride)},
             0);
  Shape result = {shape[0], shape[1] * Dim(h->window * w->window), h->count() * w->count()};
  if (single) result.erase(result.begin());
  return {b.reshape(windows, result)};
}

// The inverse: overlapping windows add up, by a scatter to the places that im2col reads.
Values col2im(Call& c) {
  GraphBuilder& b = c.b;
  NodeId x = c.tensor("self");
  Shape columns = b.shape(x);
  const std::vector<Dim> size = c.sizes("output_size");
  const bool single = columns.size() == 2;
  if (single) columns.insert(columns.begin(), 1);
  if (!c.ok() || columns.size() != 3 || size.size() != 2) return {c.invalid("needs columns")};
  const auto h = window_axis(c, size[0], 0), w = window_axis(c, size[1], 1);
  if (!h || !w) return {};
  const Result<Dim> channels = Dim::divide_exact(columns[1], h->window * w->window);
  if (!channels) return {c.invalid("the columns do not divide into windows")};
  const Dim tall = size[0] + Dim(2 * h->padding), broad = size[1] + Dim(2 * w->padding);
  const Dim lead = columns[0] * *channels;
  const DType type = b.dtype(x), compute = compute_type(type);
  // Places first, one row for each image and channel behind.
  const NodeId updates = b.permute(
      b.reshape(b.cast(x, compute), {lead, h->window * w->window * h->count() * w->count()}),
      {1, 0});
  const NodeId place = b.view(
      b.iota(DType::kI64, tall * broad), {h->window, w->window, h->count(), w->count()},
      {broad * Dim(h->dilation), Dim(w->dilation), broad * Dim(h->stride), Dim(w->stride)}, 0);
  const NodeId zero = b.broadcast(scalar(b, compute, to_number(int64_t{0})), {tall * broad, lead});
  if (!c.ok()) return {};
  NodeId sum = b.scatter(zero, b.reshape(place, {numel(b.shape(place))}), updates, Combine::kAdd);
  sum = b.reshape(b.permute(sum, {1, 0}), {columns[0], *channels, tall, broad});
  sum = b.slice(b.slice(sum, 2, h->padding, size[0]), 3, w->padding, size[1]);
  Shape result = {columns[0], *channels, size[0], size[1]};
  if (single) result.erase(result.begin());
  return {b.reshape(b.cast(sum, type), result)};
}

enum GridPadding : int64_t { kZeros = 0, kBorder = 1, kReflection = 2 };

// Mirrored into [low, high] / 2, as often as it takes.
Expr reflected(Expr x, double twice_low, double twice_high) {
  if (twice_low == twice_high) return x * 0;
  const double low = twice_low / 2, span = (twice_high - twice_low) / 2;
  const Expr away = abs(x - low), times = floor(away / span), rest = away - times * span;
  const Expr odd = times - floor(times / 2) * 2;
  return choose(odd == 0, rest + low, (span - rest) + low);
}

Expr grid_coordinate(Call& c, Expr g, int64_t size) {
  const bool align = c.flag("align_corners", false);
  const double count = static_cast<double>(size);
  Expr at = align ? (g + 1) * ((count - 1) / 2) : ((g + 1) * count - 1) / 2;
  const int64_t padding = c.integer("padding_mode", kZeros);
  if (padding == kReflection)
    at = align ? reflected(at, 0, 2 * (count - 1)) : reflected(at, -1, 2 * count - 1);
  return padding == kZeros ? at : min(max(at, 0), count - 1);
}

// The image's values [n, c, h, w] at whole coordinates of [n, oh, ow]; 0 outside.
Expr pixel(Expr x, Expr row, Expr column) {
  GraphBuilder& b = *x.b;
  const Shape image = x.shape(), at = row.shape();
  const int64_t h = image[2].constant(), w = image[3].constant();
  const Expr inside = (row >= 0) & (row <= static_cast<double>(h - 1)) & (column >= 0) &
                      (column <= static_cast<double>(w - 1));
  const Expr flat = clamped(choose(inside, row, 0).cast(DType::kI64), h) * static_cast<double>(w) +
                    clamped(choose(inside, column, 0).cast(DType::kI64), w);
  // Channels last: one row for each pixel of the batch.
  const NodeId rows =
      b.reshape(b.permute(x.id, {0, 2, 3, 1}), {image[0] * image[2] * image[3], image[1]});
  const Expr sample = Expr{&b, coordinate(b, at, 0)} * static_cast<double>(h * w);
  const Expr found{&b, b.gather(rows, (sample + flat).id)};
  const Expr placed{&b, b.permute(found.id, {0, 3, 1, 2})};
  return choose(inside.reshape({at[0], 1, at[1], at[2]}), placed, 0);
}

Values grid_sampler_2d(Call& c) {
  GraphBuilder& b = c.b;
  const Expr x = tensor(c, "input"), grid = tensor(c, "grid");
  const int64_t mode = c.integer("interpolation_mode", 0);
  const Shape image = x.shape(), at = grid.shape();
  if (!c.ok() || image.size() != 4 || at.size() != 4 || !at[3].is(2))
    return {c.unsupported("grid_sampler of anything but images is not covered")};
  if (!image[2].is_constant() || !image[3].is_constant() || image[2].is(0) || image[3].is(0) ||
      mode > 1)
    return {
        c.unsupported("grid_sampler of a symbolic size or with bicubic interpolation is not "
                      "covered")};
  const Expr v = wide(x), g = grid.cast(v.dtype());
  const Shape place = {at[0], at[1], at[2]};
  const auto part = [&](int i) { return Expr{&b, b.slice(g.id, 3, i, 1)}.reshape(place); };
  const Expr column = grid_coordinate(c, part(0), image[3].constant());
  const Expr row = grid_coordinate(c, part(1), image[2].constant());
  if (mode == 1)
    return {pixel(v, apply(Op::kRound, row), apply(Op::kRound, column)).cast(x.dtype()).id};
  const Expr top = floor(row), left = floor(column);
  const Shape wide_place = {at[0], 1, at[1], at[2]};
  const Expr dy = (row - top).reshape(wide_place), dx = (column - left).reshape(wide_place);
  const Expr result =
      pixel(v, top, left) * ((1 - dy) * (1 - dx)) + pixel(v, top, left + 1) * ((1 - dy) * dx) +
      pixel(v, top + 1, left) * (dy * (1 - dx)) + pixel(v, top + 1, left + 1) * (dy * dx);
  return {result.cast(x.dtype()).id};
}

constexpr Lowering kResamplingLowerings[] = {
    {"aten.upsample_nearest1d.default", upsample<Method::kNearest>},
    {"aten.upsample_nearest2d.default", upsample<Method::kNearest>},
    {"aten.upsample_nearest3d.default", upsample<Method::kNearest>},
    {"aten.upsample_nearest1d.vec", upsample<Method::kNearest>},
    {"aten.upsample_nearest2d.vec", upsample<Method::kNearest>},
    {"aten.upsample_nearest3d.vec", upsample<Method::kNearest>},
    {"aten._upsample_nearest_exact1d.default", upsample<Method::kNearestExact>},
    {"aten._upsample_nearest_exact2d.default", upsample<Method::kNearestExact>},
    {"aten._upsample_nearest_exact3d.default", upsample<Method::kNearestExact>},
    {"aten._upsample_nearest_exact1d.vec", upsample<Method::kNearestExact>},
    {"aten._upsample_nearest_exact2d.vec", upsample<Method::kNearestExact>},
    {"aten._upsample_nearest_exact3d.vec", upsample<Method::kNearestExact>},
    {"aten.upsample_linear1d.default", upsample<Method::kLinear>},
    {"aten.upsample_linear1d.vec", upsample<Method::kLinear>},
    {"aten.upsample_bilinear2d.default", upsample<Method::kLinear>},
    {"aten.upsample_bilinear2d.vec", upsample<Method::kLinear>},
    {"aten.upsample_trilinear3d.default", upsample<Method::kLinear>},
    {"aten.upsample_trilinear3d.vec", upsample<Method::kLinear>},
    {"aten.upsample_bicubic2d.default", upsample<Method::kCubic>},
    {"aten.upsample_bicubic2d.vec", upsample<Method::kCubic>},
    {"aten._upsample_bilinear2d_aa.default", upsample_aa<false>},
    {"aten._upsample_bilinear2d_aa.vec", upsample_aa<false>},
    {"aten._upsample_bicubic2d_aa.default", upsample_aa<true>},
    {"aten._upsample_bicubic2d_aa.vec", upsample_aa<true>},
    {"aten.affine_grid_generator.default", affine_grid_generator},
    {"aten.reflection_pad1d.default", edge_pad<Edge::kReflect>},
    {"aten.reflection_pad2d.default", edge_pad<Edge::kReflect>},
    {"aten.reflection_pad3d.default", edge_pad<Edge::kReflect>},
    {"aten.replication_pad1d.default", edge_pad<Edge::kReplicate>},
    {"aten.replication_pad2d.default", edge_pad<Edge::kReplicate>},
    {"aten.replication_pad3d.default", edge_pad<Edge::kReplicate>},
    {"aten.pad.default", pad},
    {"aten.im2col.default", im2col},
    {"aten.col2im.default", col2im},
    {"aten.grid_sampler_2d.default", grid_sampler_2d},
    {"aten.grid_sampler.default", grid_sampler_2d},
};

}  // namespace

std::span<const Lowering> resampling_lowerings() {
  return kResamplingLowerings;
}

}  // namespace kiln
