// aten._scaled_mm: 8-bit floats whose scales belong to the whole, to rows and columns, or to blocks.
#include <gtest/gtest.h>

#include "tests/compiler_core/frontend/one_node.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT: the vocabulary of these tests

// Small integers, which e4m3 holds.
Doubles small(int64_t count, int64_t step) {
  Doubles values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>((i * step) % 9) - 4);
  return values;
}

// x [rows, depth] times z [depth, columns] under scales of these shapes, and what comes out; the
// expected value is computed from scales that are spread over the elements.
void expect_product(int64_t rows, int64_t depth, int64_t columns,
                    const std::vector<int64_t>& shape_x, const std::vector<int64_t>& shape_z) {
  const auto count = [](const std::vector<int64_t>& sizes) {
    int64_t all = 1;
    for (const int64_t size : sizes) all *= size;
    return all;
  };
  const Doubles x = small(rows * depth, 5), z = small(depth * columns, 7);
  Doubles scale_x, scale_z;
  for (int64_t i = 0; i < count(shape_x); ++i) scale_x.push_back(0.5 + static_cast<double>(i % 5));
  for (int64_t i = 0; i < count(shape_z); ++i) scale_z.push_back(0.25 + static_cast<double>(i % 3));
  const auto at = [](const Doubles& scale, const std::vector<int64_t>& shape, int64_t i, int64_t j,
                     int64_t sizes_i, int64_t sizes_j) {
    if (shape.size() != 2) return scale[0];
    return scale[static_cast<size_t>(i / (sizes_i / shape[0]) * shape[1] +
                                     j / (sizes_j / shape[1]))];
  };
  Doubles expected;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < depth; ++k)
        sum += x[static_cast<size_t>(i * depth + k)] * at(scale_x, shape_x, i, k, rows, depth) *
               z[static_cast<size_t>(k * columns + j)] * at(scale_z, shape_z, k, j, depth, columns);
      expected.push_back(sum);
    }
  expect_values({"aten._scaled_mm.default",
                 {kX, tensor("mat2", "z"), tensor("scale_a", "w"), tensor("scale_b", "v"),
                  dtype("out_dtype", kFloat)},
                 {{kE4M3, {rows, depth}, x},
                  {kE4M3, {depth, columns}, z},
                  {kFloat, shape_x, scale_x},
                  {kFloat, shape_z, scale_z}},
                 kFloat,
                 {rows, columns}},
                expected);
}

TEST(ScaledMm, ScalesOfTheWhole) {
  expect_product(4, 32, 16, {}, {1});
}
TEST(ScaledMm, ScalesOfRowsAndColumns) {
  expect_product(4, 32, 16, {4, 1}, {1, 16});
}
TEST(ScaledMm, ScalesOfBlocks) {
  expect_product(3, 256, 128, {3, 2}, {2, 1});
  expect_product(128, 128, 256, {1, 1}, {1, 2});
}

TEST(ScaledMm, OtherScalesAndDtypesAreRefused) {
  const auto refused = [](int code, const std::vector<int64_t>& scale) {
    const OneNode node{"aten._scaled_mm.default",
                       {kX, tensor("mat2", "z"), tensor("scale_a", "w"), tensor("scale_b", "v")},
                       {{code, {4, 32}, small(128, 5)},
                        {code, {32, 4}, small(128, 7)},
                        {kFloat, scale, Doubles(static_cast<size_t>(scale[0]), 1.0)},
                        {kFloat, {1}, {1}}},
                       code,
                       {4, 4}};
    const auto made = node.run();
    return !made && made.error().code == Code::kUnsupported;
  };
  EXPECT_TRUE(refused(kE4M3, {3}));
  EXPECT_TRUE(refused(kFloat, {1}));
}

// Microscaling: an e8m0 scale for each 32 of the depth, [lines, blocks] of exponents.
int exponent_at(int64_t line, int64_t block) {
  return static_cast<int>((line * 3 + block * 5) % 11) - 5;
}
// In tiles of 128 lines and 4 blocks, as cuBLAS documents it (1D block scaling factors' layout); what lies
// beyond lines and blocks is 2^60, and must not be read.
Doubles in_tiles(int64_t lines, int64_t blocks) {
  const int64_t across = (blocks + 3) / 4;
  Doubles scales(static_cast<size_t>((lines + 127) / 128 * across * 512), std::ldexp(1.0, 60));
  for (int64_t line = 0; line < lines; ++line)
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t tile = line / 128 * across + block / 4;
      const int64_t at = tile * 512 + line % 32 * 16 + line % 128 / 32 * 4 + block % 4;
      scales[static_cast<size_t>(at)] = std::ldexp(1.0, exponent_at(line, block));
    }
  return scales;
}
Doubles in_rows(int64_t lines, int64_t blocks) {
  Doubles scales;
  for (int64_t line = 0; line < lines; ++line)
    for (int64_t block = 0; block < blocks; ++block)
      scales.push_back(std::ldexp(1.0, exponent_at(line, block)));
  return scales;
}
Doubles microscaled(int64_t rows, int64_t depth, int64_t columns) {
  const Doubles x = small(rows * depth, 5), z = small(depth * columns, 7);
  Doubles expected;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < depth; ++k)
        sum += std::ldexp(x[static_cast<size_t>(i * depth + k)], exponent_at(i, k / 32)) *
               std::ldexp(z[static_cast<size_t>(k * columns + j)], exponent_at(j, k / 32));
      expected.push_back(sum);
    }
  return expected;
}
std::vector<OneNode::In> microscaled_inputs(int64_t rows, int64_t depth, int64_t columns,
                                            bool tiles) {
  const int64_t blocks = (depth + 31) / 32;
  const auto scale = [&](int64_t lines) {
    const Doubles values = tiles ? in_tiles(lines, blocks) : in_rows(lines, blocks);
    const auto count = static_cast<int64_t>(values.size());
    return OneNode::In{
        kE8M0, tiles ? std::vector<int64_t>{count} : std::vector<int64_t>{lines, blocks}, values};
  };
  return {{kE4M3, {rows, depth}, small(rows * depth, 5)},
          {kE4M3, {depth, columns}, small(depth * columns, 7)},
          scale(rows),
          scale(columns)};
}

TEST(ScaledMm, ScalesOfBlocksOf32LieInTiles) {
  for (const auto& [rows, depth, columns] :
       {std::array<int64_t, 3>{4, 32, 16}, {130, 160, 33}, {5, 288, 140}, {3, 48, 16}})
    expect_values({"aten._scaled_mm.default",
                   {kX, tensor("mat2", "z"), tensor("scale_a", "w"), tensor("scale_b", "v"),
                    dtype("out_dtype", kFloat)},
                   microscaled_inputs(rows, depth, columns, true),
                   kFloat,
                   {rows, columns}},
                  microscaled(rows, depth, columns));
}

// _scaled_mm_v2, with a recipe and a swizzle for both sides.
OneNode by_recipe(int64_t recipe, int64_t swizzle, std::vector<OneNode::In> inputs) {
  const int64_t rows = inputs[0].sizes[0], columns = inputs[1].sizes[1];
  const std::vector<int64_t> recipes = {recipe}, swizzles = {swizzle};
  return {
      "aten._scaled_mm_v2.default",
      {kX, tensor("mat2", "z"), tensors("scale_a", {"w"}), integers("recipe_a", recipes),
       integers("swizzle_a", swizzles), tensors("scale_b", {"v"}), integers("recipe_b", recipes),
       integers("swizzle_b", swizzles), dtype("out_dtype", kFloat)},
      std::move(inputs),
      kFloat,
      {rows, columns}};
}

TEST(ScaledMm, RecipesSayWhatScalesBelongTo) {
  for (const bool tiles : {false, true})
    expect_values(by_recipe(3, tiles ? 1 : 0, microscaled_inputs(5, 160, 33, tiles)),
                  microscaled(5, 160, 33));
  const auto of_ones = [](const OneNode::In& scale_a, const OneNode::In& scale_b) {
    return std::vector<OneNode::In>{{kE4M3, {2, 256}, Doubles(512, 1.0)},
                                    {kE4M3, {256, 3}, Doubles(768, 1.0)},
                                    scale_a,
                                    scale_b};
  };
  expect_values(by_recipe(0, 0, of_ones({kFloat, {1}, {2}}, {kFloat, {}, {3}})),
                Doubles(6, 256 * 6.0));
  expect_values(by_recipe(1, 0, of_ones({kFloat, {2, 1}, {1, 2}}, {kFloat, {1, 3}, {1, 2, 3}})),
                {256, 512, 768, 512, 1024, 1536});
  expect_values(
      by_recipe(4, 0,
                of_ones({kFloat, {2, 2}, {1, 2, 3, 4}}, {kFloat, {3, 2}, {1, 1, 2, 0, 0, 1}})),
      {128 * 3.0, 128 * 2.0, 128 * 2.0, 128 * 7.0, 128 * 6.0, 128 * 4.0});
}

TEST(ScaledMm, OtherRecipesAreRefused) {
  const auto refused = [](int64_t recipe, int64_t swizzle, bool tiles) {
    const auto got = by_recipe(recipe, swizzle, microscaled_inputs(4, 64, 16, tiles)).run();
    return !got && got.error().code == Code::kUnsupported;
  };
  EXPECT_FALSE(refused(3, 1, true));
  EXPECT_FALSE(refused(3, 0, false));
  EXPECT_TRUE(refused(3, 1, false)) << "too few for tiles";
  EXPECT_TRUE(refused(3, 0, true)) << "too many for rows";
  EXPECT_TRUE(refused(3, 2, true)) << "another swizzle";
  EXPECT_TRUE(refused(2, 1, true)) << "blocks of 16";
  EXPECT_TRUE(refused(1, 0, true)) << "e8m0 of rows";
}

}  // namespace
}  // namespace kiln
