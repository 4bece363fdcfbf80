// Resize and Upsample. Bilinear and bicubic ones are ATen's; nearest ones pick by an index for each
// axis.
#include <algorithm>
#include <cmath>

#include "compiler_core/frontend/onnx/call.h"

namespace kiln {
namespace {

struct Resized {
  Expr x;
  std::vector<int64_t> in, out;  // 1 of a dynamic size, which stays as it is
  std::vector<double> scale;     // out / in, as given where it was
  bool by_scale = false;         // which was
};

// One number for each axis of x: as given, or for those that `axes` names.
template <class T>
std::vector<T> for_all_axes(OnnxCall& c, const std::vector<T>& given, std::vector<T> all) {
  std::vector<int64_t> named = c.list("axes").value_or(std::vector<int64_t>());
  if (named.empty())
    for (size_t i = 0; i < all.size(); ++i) named.push_back(static_cast<int64_t>(i));
  if (given.size() != named.size()) {
    c.invalid("needs a scale or size for each axis");
    return all;
  }
  for (size_t i = 0; i < named.size(); ++i)
    all[static_cast<size_t>(c.axis(named[i], all.size()))] = given[i];
  return all;
}

void refuse_dynamic(OnnxCall& c) {
  c.unsupported("resizing a dynamic size is not covered; export the size as a constant");
}

Resized read_resized(OnnxCall& c) {
  Resized r{c.tensor(0), {}, {}, {}, false};
  if (!c.ok()) return r;
  const Shape shape = r.x.shape();
  for (const Dim& size : shape) r.in.push_back(size.is_constant() ? size.constant() : 1);
  const size_t scales = c.op() == "Upsample" ? 1 : 2;
  const KnownTensor* given = c.has(scales) ? c.known(scales) : nullptr;
  r.by_scale = c.has(scales) && (given == nullptr || given->numel() > 0);
  if (r.by_scale) {
    const std::vector<double> factors = c.reals(scales, "list of scales");
    r.scale = for_all_axes(c, factors, std::vector<double>(r.in.size(), 1));
    for (size_t i = 0; i < r.in.size(); ++i)
      r.out.push_back(std::clamp<int64_t>(
          truncated(std::floor(static_cast<double>(r.in[i]) * r.scale[i])), 0, 1'000'000'000));
  } else {
    const std::vector<Dim> sizes = for_all_axes(c, c.sizes(3, "list of sizes"), shape);
    for (size_t i = 0; i < r.in.size() && c.ok(); ++i) {
      if (!sizes[i].is_constant() && sizes[i] != shape[i]) refuse_dynamic(c);
      r.out.push_back(sizes[i].is_constant() ? sizes[i].constant() : 1);
    }
    if (!c.ok()) return r;
    for (size_t i = 0; i < r.in.size(); ++i)
      r.scale.push_back(static_cast<double>(r.out[i]) / static_cast<double>(r.in[i]));
  }
  for (size_t i = 0; i < r.in.size() && c.ok(); ++i)
    if (!shape[i].is_constant() && (r.in[i] != r.out[i] || r.scale[i] != 1)) refuse_dynamic(c);
  for (size_t i = 0; i < r.in.size() && c.ok(); ++i)
    if (r.in[i] < 1 || r.out[i] < 1 || r.out[i] > 1 << 30 || !(r.scale[i] > 0))
      c.invalid("a size is not positive");
  if (c.text("keep_aspect_ratio_policy", "stretch") != "stretch")
    c.unsupported("keep_aspect_ratio_policy other than stretch is not covered");
  return r;
}

// Where in the operand result i of an axis lies, as f32 [out].
Expr places(OnnxCall& c, const Resized& r, size_t axis, std::string_view mode) {
  const Expr i = Expr{&c.b, c.b.iota(DType::kI64, r.out[axis])}.cast(DType::kF32);
  const double scale = r.scale[axis];
  const double in = static_cast<double>(r.in[axis]);
  // The size that a factor gives, which need not be whole.
  const double out = r.by_scale ? in * scale : static_cast<double>(r.out[axis]);
  if (mode == "asymmetric") return i / scale;
  if (mode == "align_corners") return out == 1 ? i * 0 : i * ((in - 1) / (out - 1));
  if (mode == "half_pixel" || (mode == "pytorch_half_pixel" && out > 1))
    return (i + 0.5) / scale - 0.5;
  if (mode == "pytorch_half_pixel") return i * 0;
  if (mode == "half_pixel_symmetric") {
    const double adjusted = out / (scale * in);
    const double offset = in / 2 * (1 - adjusted);
    return (i + 0.5) / scale - 0.5 + offset;
  }
  c.unsupported("coordinate_transformation_mode '" + std::string(mode.substr(0, 40)) +
                "' is not covered");
  return i;
}

Expr rounded(OnnxCall& c, Expr place, std::string_view mode) {
  if (mode == "floor") return floor(place);
  if (mode == "ceil") return apply(Op::kCeil, place);
  if (mode == "round_prefer_ceil") return floor(place + 0.5);
  if (mode != "round_prefer_floor")
    c.invalid("there is no nearest_mode '" + std::string(mode.substr(0, 40)) + "'");
  return apply(Op::kCeil, place - 0.5);
}

Values nearest(OnnxCall& c, const Resized& r) {
  const std::string_view by =
      c.text("coordinate_transformation_mode", c.op() == "Upsample" ? "asymmetric" : "half_pixel");
  const std::string_view round =
      c.text("nearest_mode", c.op() == "Upsample" ? "floor" : "round_prefer_floor");
  NodeId x = r.x.id;
  for (size_t axis = 0; axis < r.in.size() && c.ok(); ++axis) {
    if (r.in[axis] == r.out[axis] && r.scale[axis] == 1) continue;
    const Expr at = rounded(c, places(c, r, axis, by), round);
    const Expr held = min(max(at, 0), static_cast<double>(r.in[axis] - 1)).cast(DType::kI64);
    x = gather_axis(c.b, x, static_cast<int>(axis), held.id);
  }
  return {x};
}

// What PyTorch writes for upsample_nearest: whole factors of the spatial axes by floor.
bool is_upsample_nearest(OnnxCall& c, const Resized& r) {
  return c.op() == "Resize" &&
         c.text("coordinate_transformation_mode", "half_pixel") == "asymmetric" &&
         c.text("nearest_mode", "round_prefer_floor") == "floor" && r.in.size() >= 3 &&
         r.in.size() <= 5 && r.in[0] == r.out[0] && r.in[1] == r.out[1];
}

// By ATen's op: a factor that was given counts, not the quotient of the sizes.
Expr upsampled(OnnxCall& c, const Resized& r, std::string_view target, bool align) {
  std::vector<AtenArgument> arguments = {
      {"input", r.x},
      {"output_size", std::vector<int64_t>(r.out.begin() + 2, r.out.end())},
      {"align_corners", align}};
  if (r.by_scale)
    arguments.emplace_back("scale_factors",
                           std::vector<double>(r.scale.begin() + 2, r.scale.end()));
  return c.aten(target, arguments);
}

Values interpolated(OnnxCall& c, const Resized& r, std::string_view mode) {
  const size_t rank = r.in.size();
  const std::string_view by = c.text("coordinate_transformation_mode", "half_pixel");
  const bool align = by == "align_corners";
  const bool half = by == "half_pixel" || by == "pytorch_half_pixel";
  if (rank < 3 || rank > 5 || r.in[0] != r.out[0] || r.in[1] != r.out[1])
    return {
        c.unsupported("interpolation of other axes than the spatial ones of [batch, channels, "
                      "...] is not covered")};
  if ((!align && !half) || c.flag("antialias", false) || c.flag("exclude_outside", false))
    return {c.unsupported("interpolation by '" + std::string(by.substr(0, 40)) +
                          "', antialiased or that excludes what is outside, is not covered; "
                          "half_pixel and align_corners are")};
  for (size_t i = 2; i < rank && align && r.by_scale; ++i)
    if (std::abs(static_cast<double>(r.in[i]) * r.scale[i] - static_cast<double>(r.out[i])) > 1e-6)
      return {
          c.unsupported("align_corners by a factor that gives no whole size is not covered; "
                        "give the size")};
  if (by == "pytorch_half_pixel")
    for (size_t i = 2; i < rank; ++i)
      if (r.out[i] == 1 && r.in[i] != 1)
        return {c.unsupported("pytorch_half_pixel to a size of 1 is not covered; use half_pixel")};
  std::string_view target = rank == 3   ? "aten.upsample_linear1d.vec"
                            : rank == 4 ? "aten.upsample_bilinear2d.vec"
                                        : "aten.upsample_trilinear3d.vec";
  if (mode == "cubic") {
    if (rank != 4 || std::abs(c.real("cubic_coeff_a", -0.75) + 0.75) > 1e-6)
      return {
          c.unsupported("cubic interpolation of other than images, or with a coefficient "
                        "other than -0.75, is not covered")};
    target = "aten.upsample_bicubic2d.vec";
  }
  return {upsampled(c, r, target, align).id};
}

Values resize(OnnxCall& c) {
  const Resized r = read_resized(c);
  if (!c.ok()) return {};
  const std::string_view mode = c.text("mode", "nearest");
  if (mode == "nearest" && is_upsample_nearest(c, r)) {
    constexpr std::string_view kTargets[] = {"aten.upsample_nearest1d.vec",
                                             "aten.upsample_nearest2d.vec",
                                             "aten.upsample_nearest3d.vec"};
    return {upsampled(c, r, kTargets[r.in.size() - 3], false).id};
  }
  if (mode == "nearest") return nearest(c, r);
  if (mode == "linear" || mode == "bilinear") return interpolated(c, r, "linear");
  if (mode == "cubic") return interpolated(c, r, "cubic");
  return {c.invalid("there is no mode '" + std::string(mode.substr(0, 40)) + "'")};
}

constexpr OnnxLowering kOnnxResizeLowerings[] = {{"Resize", resize}, {"Upsample", resize}};

}  // namespace

std::span<const OnnxLowering> onnx_resize_lowerings() {
  return kOnnxResizeLowerings;
}

}  // namespace kiln
