// aten._scaled_mm: 8-bit floats whose scales belong to the whole, to rows and columns, or to blocks.
#include <gtest/gtest.h>

#include "tests/compiler_core/frontend/one_node.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT: the vocabulary of these tests

constexpr int kE4M3 = 29;

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

}  // namespace
}  // namespace kiln
