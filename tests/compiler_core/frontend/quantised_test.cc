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

// x.to(float8_e4m3fn) of a program that this version of PyTorch exported.
Doubles e4m3_of(const std::string& torch_version, int from, const Doubles& x) {
  const std::vector<int64_t> sizes{static_cast<int64_t>(x.size())};
  ModelText model;
  model.torch_version(torch_version).input("x", from, sizes);
  model.node("aten._to_copy.default", {kX, dtype("dtype", kE4M3)}, "y", kE4M3, sizes).output("y");
  const auto program = lower(model.json());
  EXPECT_TRUE(program) << program.error().message;
  const Tensor input = make_tensor(program->inputs[0].dtype, sizes, x);
  const Tensor* const inputs[] = {&input};
  return values_of((*interpret(program->graph, inputs))[0]);
}

TEST(E4M3, WhatLiesBeyondItsRangeIsWhatThePyTorchThatExportedMakesOfIt) {
  const Doubles beyond{-1000, 480, 65504, kInf};
  for (const int from : {kHalf, kBFloat16, kFloat, kDouble}) {
    for (const char* before : {"2.11.0+cu130", "2.12.1", "", "2", "two.13"})
      for (const double each : e4m3_of(before, from, beyond))
        EXPECT_TRUE(std::isnan(each)) << before;
    for (const char* since : {"2.13.0", "2.15.0+cu132", "3.0"})
      EXPECT_EQ(e4m3_of(since, from, beyond), (Doubles{-448, 448, 448, 448})) << since;
    EXPECT_EQ(e4m3_of("2.15.0", from, {1, -0.25, 464}), (Doubles{1, -0.25, 448}));
    EXPECT_TRUE(std::isnan(e4m3_of("2.15.0", from, {kNan})[0]));
  }
  EXPECT_EQ(e4m3_of("2.15.0", kLong, {1000, -7}), (Doubles{448, -7}));
  EXPECT_EQ(e4m3_of("2.15.0", kChar, {127, -128}), (Doubles{128, -128}));
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
