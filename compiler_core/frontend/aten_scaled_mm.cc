// Products of 8-bit floats with scales: of the whole, of rows and columns, of blocks of 128 in f32, or of
// blocks of 32 along the depth in e8m0 (OCP Microscaling Formats, 2023).
#include "compiler_core/base/math.h"
#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

// torch.nn.functional.ScalingType and SwizzleType.
enum Recipe : int64_t { kTensorWise = 0, kRowWise = 1, k1x32 = 3, k1x128 = 4, k128x128 = 5 };
enum Swizzle : int64_t { kNotSwizzled = 0, k32x4x4 = 1 };
constexpr int64_t kBlock = 128, kSmallBlock = 32;

// A scale in a shape that broadcasts with the matrix `x`. It is one number, one for each row or column,
// or one for each block of 128 along one axis or both.
std::optional<Expr> scale_beside(Expr scale, Expr x) {
  const Shape given = scale.shape(), wanted = x.shape();
  if (numel(given).is(1)) return scale.reshape({});
  if (given.size() != 2) return std::nullopt;
  Shape blocks, elements;  // two axes for each of the matrix: the block, and the place in it
  for (size_t axis = 0; axis < 2; ++axis) {
    const bool blocked = given[axis] != wanted[axis] && given[axis] * Dim(kBlock) == wanted[axis];
    if (!blocked && given[axis] != wanted[axis] && !given[axis].is(1)) return std::nullopt;
    blocks.insert(blocks.end(), {given[axis], Dim(1)});
    elements.insert(elements.end(),
                    {blocked ? given[axis] : wanted[axis], blocked ? Dim(kBlock) : Dim(1)});
  }
  const bool in_blocks = !elements[1].is(1) || !elements[3].is(1);
  return in_blocks ? scale.reshape(blocks).broadcast(elements).reshape(wanted) : scale;
}

// e8m0 scales of blocks of 32, [lines, depth] of them, one for each element. In memory they are
// [lines, blocks], or in tiles of 128 lines and 4 blocks, with zeros where tiles reach beyond: of a tile,
// 32 rows of 16 bytes, row i has those of the lines i, i + 32, i + 64 and i + 96.
std::optional<Expr> scale_of_small_blocks(Expr scale, const Shape& lines_by_depth,
                                          Swizzle swizzle) {
  constexpr int64_t kLines = 128, kBlocks = 4;
  if (!lines_by_depth[0].is_constant() || !lines_by_depth[1].is_constant()) return std::nullopt;
  const int64_t lines = lines_by_depth[0].constant(), depth = lines_by_depth[1].constant();
  constexpr int64_t kMost = int64_t{1} << 31;  // so that nothing below overflows
  if (lines < 1 || depth < 1 || lines > kMost || depth > kMost) return std::nullopt;
  const int64_t blocks = round_up(depth, kSmallBlock) / kSmallBlock;
  const int64_t all_lines = round_up(lines, kLines), all_blocks = round_up(blocks, kBlocks);
  if (swizzle == k32x4x4) {
    if (!numel(scale.shape()).is(all_lines * all_blocks)) return std::nullopt;
    const Expr tiles = scale.reshape({all_lines / kLines, all_blocks / kBlocks, 32, 4, kBlocks});
    const Expr ordered{scale.b, scale.b->permute(tiles.id, {0, 3, 2, 1, 4})};
    scale = ordered.reshape({all_lines, all_blocks}).slice(0, 0, lines).slice(1, 0, blocks);
  } else if (scale.shape() != Shape{lines, blocks}) {
    return std::nullopt;
  }
  const Expr wide = scale.cast(DType::kF32).reshape({lines, blocks, 1});
  const Expr each = wide.broadcast({lines, blocks, kSmallBlock});
  return each.reshape({lines, blocks * kSmallBlock}).slice(1, 0, depth);
}

struct Scales {
  Expr of_x, of_y;  // broadcast with x, [rows, depth], and y, [depth, columns]
  bool are_powers = false;
};

// x * scale_x times y * scale_y, plus bias, times scale_result. bf16 holds every 8-bit float, so that
// their products are exact; a scale that is the same all along the sum is a factor of the sum. Multiplied
// by a power of two they are in bf16 as well, where that is not below 2^-133.
Values product(Call& c, Expr x, Expr y, const Scales& scales) {
  GraphBuilder& b = c.b;
  const auto is_factor = [](const Expr& scale, size_t depth) {
    return scale.shape().empty() || scale.shape()[depth].is(1);
  };
  Expr result{&b, kInvalidNode};
  if (is_factor(scales.of_x, 1) && is_factor(scales.of_y, 0)) {
    const Expr sums{&b, b.matmul(x.cast(DType::kBF16).id, y.cast(DType::kBF16).id)};
    result = sums * scales.of_x * scales.of_y;
  } else {
    Expr left = x.cast(DType::kF32) * scales.of_x, right = y.cast(DType::kF32) * scales.of_y;
    if (scales.are_powers) left = left.cast(DType::kBF16), right = right.cast(DType::kBF16);
    result = {&b, b.matmul(left.id, right.id)};
  }
  if (c.has("bias")) result = result + Expr{&b, c.tensor("bias")}.cast(DType::kF32);
  if (c.has("scale_result")) {
    const Expr last{&b, c.tensor("scale_result")};
    if (!c.ok() || !numel(last.shape()).is(1)) return {c.invalid("scale_result is no number")};
    result = result * last.reshape({}).cast(DType::kF32);
  }
  return {result.cast(c.dtype("out_dtype", x.dtype())).id};
}

// Whether both are matrices of 8-bit floats; records what they are else.
bool are_matrices(Call& c, Expr x, Expr y) {
  if (!c.ok()) return false;
  if (x.shape().size() != 2 || y.shape().size() != 2) {
    c.invalid("needs two matrices");
    return false;
  }
  if (is_f8(x.dtype()) && is_f8(y.dtype())) return true;
  c.unsupported("products of other dtypes than float8_e4m3fn and float8_e5m2 are not covered here");
  return false;
}

Values scaled_mm(Call& c) {
  const Expr x = tensor(c, "self"), y = tensor(c, "mat2");
  if (!are_matrices(c, x, y)) return {};
  const Expr scale_a = tensor(c, "scale_a"), scale_b = tensor(c, "scale_b");
  if (!c.ok()) return {};
  const bool small = scale_a.dtype() == DType::kF8E8M0 && scale_b.dtype() == DType::kF8E8M0;
  const auto of_x =
      small ? scale_of_small_blocks(scale_a, x.shape(), k32x4x4) : scale_beside(scale_a, x);
  auto of_y = small ? scale_of_small_blocks(scale_b, {y.shape()[1], y.shape()[0]}, k32x4x4)
                    : scale_beside(scale_b, y);
  if (!of_x || !of_y)
    return {c.unsupported(
        "a scale is neither one number, nor one for each row of self and column of mat2, nor one "
        "for each block of 128, nor e8m0 for each block of 32 in tiles of 128x4 of known sizes")};
  if (small) of_y = transposed(*of_y);
  return product(c, x, y, {*of_x, *of_y, small});
}

// A scale of _scaled_mm_v2, beside `lines`, [rows of self or columns of mat2, depth], as the recipe says.
std::optional<Expr> scale_by_recipe(Expr scale, Expr lines, int64_t recipe, int64_t swizzle) {
  const Shape shape = lines.shape();
  if (recipe == k1x32 && scale.dtype() == DType::kF8E8M0 &&
      (swizzle == kNotSwizzled || swizzle == k32x4x4))
    return scale_of_small_blocks(scale, shape, static_cast<Swizzle>(swizzle));
  if (scale.dtype() != DType::kF32 || swizzle != kNotSwizzled) return std::nullopt;
  if (recipe == kTensorWise && numel(scale.shape()).is(1)) return scale.reshape({});
  if (recipe == kRowWise && numel(scale.shape()) == shape[0]) return scale.reshape({shape[0], 1});
  if (recipe == k1x128 && scale.shape().size() == 2) return scale_beside(scale, lines);
  // [depth / 128, rounded up to a multiple of 4; lines / 128]
  if (recipe == k128x128 && scale.shape().size() == 2 && shape[1].is_constant() &&
      scale.shape()[0].is_constant()) {
    const int64_t blocks = shape[1].constant() / kBlock;
    if (scale.shape()[0].constant() < blocks) return std::nullopt;
    return scale_beside(transposed(scale.slice(0, 0, blocks)), lines);
  }
  return std::nullopt;
}

Values scaled_mm_v2(Call& c) {
  const Expr x = tensor(c, "self"), y = tensor(c, "mat2");
  if (!are_matrices(c, x, y)) return {};
  const auto one_of = [&](std::string_view name, int64_t otherwise) -> int64_t {
    const std::vector<Dim> given = c.has(name) ? c.sizes(name) : std::vector<Dim>{};
    if (given.empty()) return otherwise;
    return given.size() == 1 && given[0].is_constant() ? given[0].constant() : -1;
  };
  const std::vector<NodeId> scale_a = c.tensors("scale_a"), scale_b = c.tensors("scale_b");
  const int64_t recipe_a = one_of("recipe_a", -1), recipe_b = one_of("recipe_b", -1);
  const int64_t swizzle_a = one_of("swizzle_a", kNotSwizzled),
                swizzle_b = one_of("swizzle_b", kNotSwizzled);
  const std::vector<Dim> axes =
      c.has("contraction_dim") ? c.sizes("contraction_dim") : std::vector<Dim>{};
  if (!c.ok()) return {};
  const bool known_axes = axes.empty() || (axes.size() == 2 && (axes[0].is(1) || axes[0].is(-1)) &&
                                           (axes[1].is(0) || axes[1].is(-2)));
  if (!known_axes) return {c.unsupported("contraction_dim is not covered but for (1, 0)")};
  std::optional<Expr> of_x, of_y;
  if (scale_a.size() == 1 && scale_b.size() == 1) {
    of_x = scale_by_recipe({&c.b, scale_a[0]}, x, recipe_a, swizzle_a);
    of_y = scale_by_recipe({&c.b, scale_b[0]}, transposed(y), recipe_b, swizzle_b);
  }
  if (!of_x || !of_y)
    return {
        c.unsupported("scales of these types, sizes and recipes are not covered: TensorWise, "
                      "RowWise, BlockWise1x128 and 128x128 in f32, BlockWise1x32 in e8m0 are")};
  if (!of_y->shape().empty()) of_y = transposed(*of_y);
  return product(c, x, y, {*of_x, *of_y, recipe_a == k1x32 && recipe_b == k1x32});
}

constexpr Lowering kScaledMmLowerings[] = {
    {"aten._scaled_mm.default", scaled_mm},
    {"aten._scaled_mm_v2.default", scaled_mm_v2},
};

}  // namespace

std::span<const Lowering> scaled_mm_lowerings() {
  return kScaledMmLowerings;
}

}  // namespace kiln
