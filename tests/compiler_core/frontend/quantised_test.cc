// Values that integers stand for: what torch 2.11 computes of them, in the dtypes of its own steps.
#include <gtest/gtest.h>

#include "tests/compiler_core/frontend/one_node.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT: the vocabulary of these tests

constexpr int kChar = 2;

// Groups of two of a row, with these zero points and scales.
void expect_groups(int zero_code, int scale_code, const Doubles& expected) {
  OneNode node{"quantized_decomposed.dequantize_per_channel_group.default",
               {tensor("input", "x"), tensor("scales", "z"), tensor("zero_points", "w"),
                integer("quant_min", -128), integer("quant_max", 127), dtype("dtype", kChar),
                integer("group_size", 2), dtype("output_dtype", kFloat)},
               {{kChar, {2, 4}, {-128, 127, -3, 100, 5, -128, 127, 0}},
                {scale_code, {2, 2}, {0.337890625, 0.25, 1, 2}},
                {zero_code, {2, 2}, {1, -1, 100, -100}}},
               kFloat,
               {2, 4}};
  expect_values(node, expected);
}

TEST(Quantised, DifferencesWithZeroPointsOf8BitsWrap) {
  expect_groups(kChar, kBFloat16, {43, 42.5, -0.5, 25.25, -95, 28, -58, 200});
}

TEST(Quantised, DifferencesWithWiderZeroPointsDoNot) {
  expect_groups(kLong, kBFloat16, {-43.5, 42.5, -0.5, 25.25, -95, -228, 454, 200});
}

TEST(Quantised, ScalesOfHalvesGiveHalves) {
  const double scale = 0.337890625;
  expect_groups(kLong, kFloat, {-129 * scale, 126 * scale, -0.5, 25.25, -95, -228, 454, 200});
}

}  // namespace
}  // namespace kiln
