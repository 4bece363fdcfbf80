// Weights of 4 bits packed as ATen's own kernels want them, and the products that read them: a weight q
// stands for (q - 8) * scale + zero, with a scale and a zero for each group of a row.
//
// A layout is a View of the packed words' halves of a byte: this file says which, and nothing else
// depends on it. Packing and unpacking are the same permutation, one way and the other.
#include <array>

#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

constexpr int64_t kTile = 8, kDepth = 16;  // lines and depth of a tile of a tensor core product
constexpr int64_t kRows = 64;              // rows of a block of ATen's kernel for AVX-512

std::optional<std::array<int64_t, 2>> constant_matrix(const Expr& x) {
  const Shape shape = x.shape();
  if (shape.size() != 2 || !shape[0].is_constant() || !shape[1].is_constant()) return std::nullopt;
  if (shape[0].constant() < 1 || shape[1].constant() < 1) return std::nullopt;
  return std::array<int64_t, 2>{shape[0].constant(), shape[1].constant()};
}

Shape sizes(std::initializer_list<int64_t> list) {
  return {list.begin(), list.end()};
}
Expr permuted(Expr x, std::initializer_list<int> axes) {
  return {x.b, x.b->permute(x.id, axes)};
}
Expr joined(Expr x, Expr y, int axis) {
  const NodeId both[] = {x.id, y.id};
  return {x.b, x.b->concat(both, axis)};
}
// The halves of bytes, the low one first, along a new axis.
Expr halves(Expr bytes, int axis) {
  Shape shape = bytes.shape();
  shape.insert(shape.begin() + axis, Dim(1));
  const Expr x = bytes.reshape(shape);
  return joined(x & x.like(15), x / 16, axis);
}
// The inverse, of numbers below 16 and an axis of 2 which vanishes.
Expr bytes_of(Expr x, int axis) {
  Shape shape = x.shape();
  shape.erase(shape.begin() + axis);
  const Expr low = x.slice(axis, 0, 1), high = x.slice(axis, 1, 1);
  return (low + high * 16).reshape(shape);
}

// ---- CPU: blocks of 64 rows, in which a byte has rows i and i + 32; in the block that is left over,
// rows 2i and 2i + 1. All of it u8.

// [rows, depth / 2] to [rows, depth].
Expr unpacked_for_cpu(Expr packed, int64_t rows, int64_t depth) {
  const int64_t whole = rows / kRows * kRows, rest = rows - whole;
  const Expr flat = packed.reshape(sizes({rows * depth / 2}));
  std::optional<Expr> blocks, left;
  if (whole > 0) {
    const Expr bytes =
        flat.slice(0, 0, whole * depth / 2).reshape(sizes({whole / kRows, depth, kRows / 2}));
    blocks = halves(permuted(bytes, {0, 2, 1}), 1).reshape(sizes({whole, depth}));
  }
  if (rest > 0) {
    const Expr bytes =
        flat.slice(0, whole * depth / 2, rest * depth / 2).reshape(sizes({depth, rest / 2}));
    left = halves(permuted(bytes, {1, 0}), 1).reshape(sizes({rest, depth}));
  }
  return !left ? *blocks : !blocks ? *left : joined(*blocks, *left, 0);
}

Values convert_for_cpu(Call& c) {
  const Expr x = tensor(c, "self");
  const auto shape = c.ok() ? constant_matrix(x) : std::nullopt;
  if (!shape || (*shape)[0] % 2 != 0)
    return {c.invalid("needs a matrix of known sizes, not empty, of an even number of rows")};
  const auto [rows, depth] = *shape;
  const Expr q = x.cast(DType::kU8) & x.cast(DType::kU8).like(15);
  const int64_t whole = rows / kRows * kRows, rest = rows - whole;
  std::optional<Expr> blocks, left;
  if (whole > 0) {
    const Expr cut = q.slice(0, 0, whole).reshape(sizes({whole / kRows, 2, kRows / 2, depth}));
    blocks = permuted(bytes_of(cut, 1), {0, 2, 1}).reshape(sizes({whole * depth / 2}));
  }
  if (rest > 0) {
    const Expr cut = q.slice(0, whole, rest).reshape(sizes({rest / 2, 2, depth}));
    left = permuted(bytes_of(cut, 1), {1, 0}).reshape(sizes({rest * depth / 2}));
  }
  const Expr flat = !left ? *blocks : !blocks ? *left : joined(*blocks, *left, 0);
  return {flat.reshape(sizes({rows, depth / 2})).id};
}

// ---- CUDA: i32 words [rows / 8, depth / (16 tiles), 32 lanes, tiles / 2]. Lane 4r + i of a word has of
// row r the depth's elements 8j + 2i + e of 32, in its half byte j + 4e.

constexpr int64_t kLanes = 4, kWord = 32;

Expr unpacked_words(Expr packed) {
  const Shape shape = packed.shape();
  const int64_t tiles = shape[0].constant(), steps = shape[1].constant();
  const int64_t words = shape[3].constant();
  GraphBuilder& b = *packed.b;
  const Expr wide = packed.cast(DType::kI64);
  const Expr bits = (wide & wide.like(0xffffffff)).reshape(sizes({tiles, steps, 32, words, 1}));
  const Expr place{&b, b.iota(DType::kI64, 8)};
  const Expr power = apply(Op::kPow, place.like(16), place);
  const Expr q = apply(Op::kDiv, bits, power);
  return permuted((q & q.like(15))
                      .cast(DType::kU8)
                      .reshape(sizes({tiles, steps, kTile, kLanes, words, 2, 4})),
                  {0, 2, 1, 4, 6, 3, 5})
      .reshape(sizes({tiles * kTile, steps * words * kWord}));
}

// Bytes [rows, depth / 2], the even elements of the depth in their upper halves.
Values convert_for_cuda(Call& c) {
  const Expr x = tensor(c, "self");
  const int64_t inner = c.integer("innerKTiles");
  const auto shape = c.ok() ? constant_matrix(x) : std::nullopt;
  if (!shape || x.dtype() != DType::kU8) return {c.invalid("needs bytes of known sizes")};
  const bool known = inner == 2 || inner == 4 || inner == 8;
  if (!known || (*shape)[0] % kTile != 0 || (*shape)[1] * 2 % (inner * kDepth) != 0)
    return {c.invalid("rows are not whole tiles of 8, or the depth not of 16 times innerKTiles")};
  const int64_t tiles = (*shape)[0] / kTile, steps = (*shape)[1] * 2 / (inner * kDepth);
  const Expr wide =
      x.cast(DType::kI64).reshape(sizes({tiles, kTile, steps, inner / 2, 4, kLanes, 1}));
  // The upper half first.
  const Expr q = joined(wide / 16, wide & wide.like(15), 6);
  const Expr ordered =
      permuted(q, {0, 2, 1, 5, 3, 6, 4}).reshape(sizes({tiles, steps, 32, inner / 2, 8}));
  const Expr place{&c.b, c.b.iota(DType::kI64, 8)};
  const Expr power = apply(Op::kPow, place.like(16), place);
  const Expr words = apply(Op::kMul, ordered, power).sum({4}, false);
  return {words.cast(DType::kI32).id};
}

// ---- The product.

// x [m, depth] with q [rows, depth] of u8, and scales and zeros [depth / group, rows, 2]. Weights are
// rounded to `type` before they are multiplied.
Values product(Call& c, Expr x, Expr q, int64_t rows, int64_t depth, DType type) {
  GraphBuilder& b = c.b;
  const int64_t group = c.integer("qGroupSize");
  const Expr both = tensor(c, "qScaleAndZeros");
  if (!c.ok()) return {};
  if (group < 1 || depth % group != 0 || both.shape() != sizes({depth / group, rows, 2}) ||
      x.shape().size() != 2 || !x.shape()[1].is(depth))
    return {c.invalid("sizes of self, mat2, qGroupSize and qScaleAndZeros do not agree")};
  const auto factor = [&](int64_t which) {
    const Expr one = both.slice(2, which, 1).reshape(sizes({depth / group, rows}));
    return permuted(one, {1, 0}).reshape(sizes({rows, depth / group, 1})).cast(DType::kF32);
  };
  const Shape groups = sizes({rows, depth / group, group});
  const Expr weights = (q.cast(DType::kF32) - 8).reshape(groups) * factor(0) + factor(1);
  const Expr stored = weights.reshape(sizes({rows, depth})).cast(type);
  return {b.cast(b.matmul(x.cast(type).id, swap_axes(b, stored.id, 0, 1)), x.dtype())};
}

Values weight_int4pack_mm_for_cpu(Call& c) {
  const Expr x = tensor(c, "self"), packed = tensor(c, "mat2");
  const auto shape = c.ok() ? constant_matrix(packed) : std::nullopt;
  if (!shape || packed.dtype() != DType::kU8 || (*shape)[0] % 2 != 0)
    return {c.invalid("needs bytes of known sizes, not empty, of an even number of rows")};
  const auto [rows, bytes] = *shape;
  return product(c, x, unpacked_for_cpu(packed, rows, bytes * 2), rows, bytes * 2, DType::kF32);
}

Values weight_int4pack_mm(Call& c) {
  const Expr x = tensor(c, "self"), packed = tensor(c, "mat2");
  if (!c.ok()) return {};
  const Shape shape = packed.shape();
  bool known = shape.size() == 4 && packed.dtype() == DType::kI32 && shape[2].is(32);
  for (const Dim& size : shape) known = known && size.is_constant() && size.constant() > 0;
  if (!known) return {c.invalid("needs weights as _convert_weight_to_int4pack packs them")};
  const int64_t rows = shape[0].constant() * kTile;
  const int64_t depth = shape[1].constant() * shape[3].constant() * kWord;
  return product(c, x, unpacked_words(packed), rows, depth, x.dtype());
}

constexpr Lowering kPackedWeightLowerings[] = {
    {"aten._convert_weight_to_int4pack.default", convert_for_cuda},
    {"aten._convert_weight_to_int4pack_for_cpu.default", convert_for_cpu},
    {"aten._weight_int4pack_mm.default", weight_int4pack_mm},
    {"aten._weight_int4pack_mm_for_cpu.default", weight_int4pack_mm_for_cpu},
};

}  // namespace

std::span<const Lowering> packed_weight_lowerings() {
  return kPackedWeightLowerings;
}

}  // namespace kiln
