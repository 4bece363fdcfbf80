// Arithmetic and activations against values worked out by hand from PyTorch's documented behaviour.
#include "compiler_core/frontend/lowering.h"

#include <cmath>

#include "tests/compiler_core/frontend/one_node.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT: the vocabulary of these tests

TEST(TypePromotion, numbers_do_not_change_the_dtype_of_a_tensor_of_their_kind) {
  expect_values(
      {"aten.mul.Tensor", {kX, real("other", "0.5")}, {{kFloat, {2}, {1, 3}}}, kFloat, {2}},
      {0.5, 1.5});
  expect_values({"aten.add.Tensor", {kX, integer("other", 2)}, {{kLong, {2}, {1, 3}}}, kLong, {2}},
                {3, 5});
  expect_values({"aten.add.Tensor", {kX, integer("other", 2)}, {{kInt, {2}, {1, 3}}}, kInt, {2}},
                {3, 5});
  expect_values(
      {"aten.mul.Tensor", {kX, real("other", "2.0")}, {{kBFloat16, {1}, {3}}}, kBFloat16, {1}},
      {6});
}

TEST(TypePromotion, a_float_number_makes_integers_f32) {
  expect_values(
      {"aten.mul.Tensor", {kX, real("other", "0.5")}, {{kLong, {2}, {1, 3}}}, kFloat, {2}},
      {0.5, 1.5});
  expect_values({"aten.lt.Scalar", {kX, real("other", "1.5")}, {{kLong, {2}, {1, 2}}}, kBool, {2}},
                {1, 0});
}

TEST(TypePromotion, tensors_promote_to_the_higher) {
  expect_values(
      {"aten.add.Tensor", {kX, kOther}, {{kHalf, {1}, {1}}, {kBFloat16, {1}, {2}}}, kFloat, {1}},
      {3});
  expect_values(
      {"aten.add.Tensor", {kX, kOther}, {{kLong, {1}, {1}}, {kBFloat16, {1}, {2}}}, kBFloat16, {1}},
      {3});
  expect_values(
      {"aten.add.Tensor", {kX, kOther}, {{kBool, {1}, {1}}, {kByte, {1}, {2}}}, kByte, {1}}, {3});
}

TEST(TypePromotion, a_scalar_tensor_of_the_same_kind_does_not_widen) {
  expect_values(
      {"aten.add.Tensor", {kX, kOther}, {{kFloat, {1}, {1}}, {kDouble, {}, {2}}}, kFloat, {1}},
      {3});
  expect_values(
      {"aten.add.Tensor", {kX, kOther}, {{kLong, {1}, {1}}, {kDouble, {}, {2}}}, kDouble, {1}},
      {3});
}

TEST(Arithmetic, a_half_tensor_takes_a_number_at_full_precision) {
  // 0.1 in bf16 is 0.10009765625; 251 * 0.1 rounds to 25.125, 251 * 0.1001 to 25.125 as well, but
  // 7 * 0.1 = 0.7 rounds to 0.69921875 and 7 * 0.10009765625 to 0.703125.
  expect_values(
      {"aten.mul.Tensor", {kX, real("other", "0.1")}, {{kBFloat16, {1}, {7}}}, kBFloat16, {1}},
      {0.69921875});
}

TEST(Arithmetic, alpha_scales_the_second_operand) {
  expect_values({"aten.add.Tensor",
                 {kX, kOther, integer("alpha", 3)},
                 {{kFloat, {1}, {1}}, {kFloat, {1}, {2}}},
                 kFloat,
                 {1}},
                {7});
  expect_values({"aten.sub.Tensor",
                 {kX, kOther, real("alpha", "0.5")},
                 {{kFloat, {1}, {1}}, {kFloat, {1}, {2}}},
                 kFloat,
                 {1}},
                {0});
  expect_values({"aten.rsub.Scalar", {kX, integer("other", 10)}, {{kFloat, {1}, {1}}}, kFloat, {1}},
                {9});
}

TEST(Arithmetic, bool_sums_and_products_are_logic) {
  const std::vector<OneNode::In> pairs = {{kBool, {4}, {0, 0, 1, 1}}, {kBool, {4}, {0, 1, 0, 1}}};
  expect_values({"aten.add.Tensor", {kX, kOther}, pairs, kBool, {4}}, {0, 1, 1, 1});
  expect_values({"aten.mul.Tensor", {kX, kOther}, pairs, kBool, {4}}, {0, 0, 0, 1});
  expect_values({"aten.logical_xor.default", {kX, kOther}, pairs, kBool, {4}}, {0, 1, 1, 0});
  expect_values({"aten.__or__.Tensor", {kX, kOther}, pairs, kBool, {4}}, {0, 1, 1, 1});
}

TEST(Arithmetic, division_of_integers_is_true_division) {
  expect_values(
      {"aten.div.Tensor", {kX, integer("other", 2)}, {{kLong, {2}, {7, -7}}}, kFloat, {2}},
      {3.5, -3.5});
  expect_values({"aten.div.Tensor_mode",
                 {kX, integer("other", 2), text("rounding_mode", "trunc")},
                 {{kLong, {2}, {7, -7}}},
                 kLong,
                 {2}},
                {3, -3});
  expect_values({"aten.div.Tensor_mode",
                 {kX, real("other", "2.0"), text("rounding_mode", "trunc")},
                 {{kFloat, {2}, {7, -7}}},
                 kFloat,
                 {2}},
                {3, -3});
  expect_values({"aten.floor_divide.default",
                 {kX, integer("other", 2)},
                 {{kLong, {4}, {7, -7, 6, -6}}},
                 kLong,
                 {4}},
                {3, -4, 3, -3});
}

TEST(Arithmetic, remainder_has_the_divisors_sign_and_fmod_the_dividends) {
  expect_values(
      {"aten.remainder.Scalar", {kX, integer("other", 3)}, {{kLong, {3}, {7, -7, -6}}}, kLong, {3}},
      {1, 2, 0});
  expect_values(
      {"aten.remainder.Scalar", {kX, real("other", "-3.0")}, {{kFloat, {2}, {7, -7}}}, kFloat, {2}},
      {-2, -1});
  expect_values(
      {"aten.fmod.Scalar", {kX, real("other", "3.0")}, {{kFloat, {2}, {7, -7}}}, kFloat, {2}},
      {1, -1});
}

TEST(Arithmetic, powers_are_written_out_as_aten_does) {
  for (const auto& [exponent, expected] :
       std::vector<std::pair<std::string, double>>{{"0.0", 1},
                                                   {"1.0", 4},
                                                   {"2.0", 16},
                                                   {"3.0", 64},
                                                   {"0.5", 2},
                                                   {"-0.5", 0.5},
                                                   {"-1.0", 0.25},
                                                   {"-2.0", 0.0625},
                                                   {"1.5", 8}})
    expect_values({"aten.pow.Tensor_Scalar",
                   {kX, real("exponent", exponent)},
                   {{kFloat, {1}, {4}}},
                   kFloat,
                   {1}},
                  {expected});
  expect_values(
      {"aten.pow.Tensor_Scalar", {kX, integer("exponent", 2)}, {{kLong, {1}, {-3}}}, kLong, {1}},
      {9});
}

TEST(Arithmetic, a_square_is_a_product) {
  ModelText power, product;
  power.input("x", kFloat, {3})
      .node("aten.pow.Tensor_Scalar", {kX, integer("exponent", 2)}, "y", kFloat, {3})
      .output("y");
  product.input("x", kFloat, {3})
      .node("aten.mul.Tensor", {kX, tensor("other", "x")}, "y", kFloat, {3})
      .output("y");
  EXPECT_EQ(graph_text(power), graph_text(product));
}

TEST(Arithmetic, comparisons_with_nan_are_false_except_ne) {
  const std::vector<OneNode::In> nan = {{kFloat, {1}, {kNan}}};
  for (const char* op : {"eq", "lt", "le", "gt", "ge"})
    expect_values(
        {"aten." + std::string(op) + ".Scalar", {kX, real("other", "1.0")}, nan, kBool, {1}}, {0});
  expect_values({"aten.ne.Scalar", {kX, real("other", "1.0")}, nan, kBool, {1}}, {1});
}

TEST(Arithmetic, where_and_masked_fill_broadcast_and_promote) {
  expect_values({"aten.where.self",
                 {tensor("condition", "x"), tensor("self", "z"), tensor("other", "w")},
                 {{kBool, {2, 1}, {1, 0}}, {kFloat, {2}, {1, 2}}, {kLong, {}, {9}}},
                 kFloat,
                 {2, 2}},
                {1, 2, 9, 9});
  expect_values({"aten.masked_fill.Scalar",
                 {kX, tensor("mask", "z"), real("value", "\"-Infinity\"")},
                 {{kFloat, {2}, {1, 2}}, {kBool, {2}, {0, 1}}},
                 kFloat,
                 {2}},
                {1, -kInf});
}

TEST(Arithmetic, clamp_takes_either_bound_and_keeps_nan) {
  expect_values({"aten.clamp.default",
                 {kX, integer("min", -1), integer("max", 1)},
                 {{kFloat, {4}, {-5, 0.5, 5, kNan}}},
                 kFloat,
                 {4}},
                {-1, 0.5, 1, kNan});
  expect_values({"aten.clamp.default",
                 {kX, none("min"), integer("max", 1)},
                 {{kFloat, {2}, {-5, 5}}},
                 kFloat,
                 {2}},
                {-5, 1});
}

TEST(Arithmetic, conversions_truncate_and_test_for_zero) {
  expect_values(
      {"aten.to.dtype", {kX, dtype("dtype", kLong)}, {{kFloat, {2}, {1.9, -1.9}}}, kLong, {2}},
      {1, -1});
  expect_values({"aten._to_copy.default",
                 {kX, dtype("dtype", kBool)},
                 {{kFloat, {3}, {0, 0.5, kNan}}},
                 kBool,
                 {3}},
                {0, 1, 1});
}

TEST(Activations, relu_keeps_nan) {
  expect_values({"aten.relu.default", {kX}, {{kFloat, {4}, {-1, 2, kNan, kInf}}}, kFloat, {4}},
                {0, 2, kNan, kInf});
}

TEST(Activations, follow_their_formulas) {
  const Doubles at = {-2, -0.5, 0, 0.5, 2};
  const auto expect = [&](const char* op, std::vector<std::string> more, double (*f)(double)) {
    Doubles expected;
    for (double x : at) expected.push_back(f(x));
    more.insert(more.begin(), kX);
    expect_values({op, more, {{kFloat, {5}, at}}, kFloat, {5}}, expected);
  };
  expect("aten.sigmoid.default", {}, [](double x) { return 1 / (1 + std::exp(-x)); });
  expect("aten.silu.default", {}, [](double x) { return x / (1 + std::exp(-x)); });
  expect("aten.gelu.default", {},
         [](double x) { return x / 2 * (1 + std::erf(x / std::sqrt(2))); });
  expect("aten.gelu.default", {text("approximate", "tanh")}, [](double x) {
    return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  });
  expect("aten.leaky_relu.default", {}, [](double x) { return x > 0 ? x : 0.01 * x; });
  expect("aten.hardtanh.default", {}, [](double x) { return std::clamp(x, -1.0, 1.0); });
}

TEST(Activations, silu_is_its_decomposition) {
  ModelText composite, written_out;
  composite.input("x", kFloat, {3}).node("aten.silu.default", {kX}, "y", kFloat, {3}).output("y");
  written_out.input("x", kFloat, {3})
      .node("aten.sigmoid.default", {kX}, "s", kFloat, {3})
      .node("aten.mul.Tensor", {kX, tensor("other", "s")}, "y", kFloat, {3})
      .output("y");
  EXPECT_EQ(graph_text(composite), graph_text(written_out));
}

TEST(Activations, dropout_is_the_identity_at_inference) {
  expect_values({"aten.dropout.default",
                 {tensor("input", "x"), real("p", "0.5"), flag("train", false)},
                 {{kFloat, {1}, {3}}},
                 kFloat,
                 {1}},
                {3});
}

}  // namespace
}  // namespace kiln
