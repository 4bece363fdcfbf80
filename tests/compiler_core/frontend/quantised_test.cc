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

OneNode under_out_dtype(const std::string& op, int code, std::vector<std::string> operands,
                        std::vector<OneNode::In> inputs, std::vector<int64_t> sizes) {
  operands.insert(operands.begin(),
                  {argument("", "as_operator", "\"torch.ops.aten." + op + "\""), dtype("", code)});
  return {"higher_order.out_dtype", operands, std::move(inputs), code, std::move(sizes)};
}

TEST(OutDtype, AProductOfBytesIsSummedExactly) {
  const OneNode product = under_out_dtype(
      "mm.default", kInt, {tensor("", "x"), tensor("", "z")},
      {{kChar, {1, 3}, {127, -128, 100}}, {kChar, {3, 1}, {127, 127, 127}}}, {1, 1});
  expect_values(product, {12573});
  const auto y = product.run();
  ASSERT_TRUE(y);
  EXPECT_EQ((*y)[0].dtype(), DType::kI32);
}

TEST(OutDtype, HalvesAreWidenedBeforeTheOp) {
  expect_values(
      under_out_dtype("mm.default", kFloat, {tensor("", "x"), tensor("", "z")},
                      {{kBFloat16, {1, 2}, {256, 1}}, {kBFloat16, {2, 1}, {1, 1}}}, {1, 1}),
      {257});
}

TEST(OutDtype, AQuotientIsCutWhereTheTypeIsAnInteger) {
  expect_values(under_out_dtype("div.Tensor", kInt, {tensor("", "x"), integer("", 2)},
                                {{kChar, {3}, {7, -7, 4}}}, {3}),
                {3, -3, 2});
}

TEST(OutDtype, IsRefusedForOpsThatPyTorchDoesNotAllow) {
  const auto sum = under_out_dtype("add.Tensor", kInt, {tensor("", "x"), integer("", 2)},
                                   {{kChar, {1}, {7}}}, {1})
                       .run();
  ASSERT_FALSE(sum);
  EXPECT_EQ(sum.error().code, Code::kUnsupported);
  EXPECT_NE(sum.error().message.find("higher_order.out_dtype"), std::string::npos)
      << sum.error().message;
}

TEST(OutDtype, WithoutAnOpOrWithMoreThanItTakesIsNoModel) {
  OneNode none{"higher_order.out_dtype", {tensor("", "x")}, {{kChar, {1}, {7}}}, kInt, {1}};
  const auto refused = none.run();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument) << refused.error().message;
  const auto many =
      under_out_dtype("mm.default", kInt, {tensor("", "x"), tensor("", "x"), tensor("", "x")},
                      {{kChar, {1, 1}, {7}}}, {1, 1})
          .run();
  ASSERT_FALSE(many);
  EXPECT_EQ(many.error().code, Code::kInvalidArgument) << many.error().message;
}

}  // namespace
}  // namespace kiln
