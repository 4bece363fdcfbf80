#include "client/cli/comparison.h"

#include <gtest/gtest.h>

#include <limits>

namespace kiln::cli {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor f32(std::vector<double> values) {
  Tensor tensor(DType::kF32, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) tensor.set(static_cast<int64_t>(i), values[i]);
  return tensor;
}

TEST(Comparison, EqualTensorsHaveNoError) {
  const Comparison same =
      compare(f32({1, -2, kInf, kNaN}), f32({1, -2, kInf, kNaN}), -1, -1, "out0");
  EXPECT_TRUE(same.ok);
  EXPECT_EQ(same.max_abs_error, 0);
}

TEST(Comparison, OneBadElementIsFoundAndNamed) {
  const Comparison off = compare(f32({1, 2.1, 3}), f32({1, 2, 3}), -1, -1, "out1");
  EXPECT_FALSE(off.ok);
  EXPECT_NEAR(off.max_abs_error, 0.1, 1e-6);
  EXPECT_NEAR(off.max_rel_error, 0.05, 1e-6);
  EXPECT_NE(off.first_difference.find("out1 element 1"), std::string::npos) << off.first_difference;
}

TEST(Comparison, NaNAndInfinityMatchOnlyThemselves) {
  EXPECT_FALSE(compare(f32({kNaN}), f32({1}), -1, -1, "").ok);
  EXPECT_FALSE(compare(f32({1}), f32({kNaN}), -1, -1, "").ok);
  EXPECT_FALSE(compare(f32({kInf}), f32({-kInf}), -1, -1, "").ok);
  EXPECT_FALSE(compare(f32({3e38}), f32({kInf}), -1, -1, "").ok);
}

TEST(Comparison, RoundingOfASumIsTolerated) {
  EXPECT_TRUE(compare(f32({1000.01, 1e-4}), f32({1000, 0}), -1, -1, "").ok);
  EXPECT_FALSE(compare(f32({1000.01, 1e-4}), f32({1000, 0}), 0, 0, "").ok);
}

TEST(Comparison, IntegersAreExactAndShapesMustMatch) {
  Tensor a(DType::kI64, {1}), b(DType::kI64, {1});
  a.set_int(0, (int64_t{1} << 62) + 1);
  b.set_int(0, int64_t{1} << 62);
  EXPECT_FALSE(compare(a, b, -1, -1, "").ok);
  EXPECT_FALSE(compare(f32({1, 2}), f32({1}), -1, -1, "").ok);
  EXPECT_FALSE(compare(f32({1}), Tensor(DType::kF64, {1}), -1, -1, "").ok);
}

}  // namespace
}  // namespace kiln::cli
