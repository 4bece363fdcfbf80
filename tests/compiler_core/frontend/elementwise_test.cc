// Elementwise functions and activations against values of PyTorch's documented formulas.
#include <gtest/gtest.h>

#include <functional>

#include "tests/compiler_core/frontend/one_node.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT: the vocabulary of these tests

using Formula = double (*)(double);

void expect_formula(const std::string& op, const std::vector<std::string>& options,
                    const Doubles& at, const std::function<double(double)>& f) {
  std::vector<std::string> arguments = {kX};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const std::vector<int64_t> sizes = {static_cast<int64_t>(at.size())};
  Doubles expected;
  for (const double x : at) expected.push_back(f(static_cast<float>(x)));
  expect_values({op, arguments, {{kFloat, sizes, at}}, kFloat, sizes}, expected);
}

TEST(Elementwise, functions_follow_the_standard_library) {
  const Doubles unit = {-1, -0.7, -1e-4, 0, 1e-4, 0.3, 1};
  const Doubles any = {-30, -2.5, -1e-4, 0, 1e-4, 0.5, 3, 30};
  const Doubles positive = {1e-3, 0.5, 1, 8, 1e9};
  const struct {
    const char* op;
    const Doubles& at;
    Formula f;
  } kCases[] = {
      {"acos", unit, std::acos},   {"asin", unit, std::asin},     {"atan", any, std::atan},
      {"sinh", any, std::sinh},    {"cosh", any, std::cosh},      {"asinh", any, std::asinh},
      {"atanh", unit, std::atanh}, {"log2", positive, std::log2}, {"log10", positive, std::log10},
      {"exp2", any, std::exp2},    {"erfc", any, std::erfc},
  };
  for (const auto& each : kCases)
    expect_formula("aten." + std::string(each.op) + ".default", {}, each.at,
                   [&](double x) { return each.f(x); });
  expect_formula("aten.acosh.default", {}, {1, 1.001, 2, 1e9},
                 [](double x) { return std::acosh(x); });
  expect_formula("aten.sinh.default", {}, {88.9, -88.9}, [](double x) { return std::sinh(x); });
}

TEST(Elementwise, tests_for_special_values) {
  const std::vector<OneNode::In> x = {{kFloat, {5}, {1, -kInf, kInf, kNan, -0.0}}};
  expect_values({"aten.isnan.default", {kX}, x, kBool, {5}}, {0, 0, 0, 1, 0});
  expect_values({"aten.isinf.default", {kX}, x, kBool, {5}}, {0, 1, 1, 0, 0});
  expect_values({"aten.isfinite.default", {kX}, x, kBool, {5}}, {1, 0, 0, 0, 1});
  expect_values({"aten.signbit.default", {kX}, x, kBool, {5}}, {0, 1, 0, 0, 1});
  expect_values({"aten.isfinite.default", {kX}, {{kLong, {2}, {1, 2}}}, kBool, {2}}, {1, 1});
  expect_values({"aten.nan_to_num.default",
                 {kX, real("nan", "7.0"), real("posinf", "8.0"), real("neginf", "-9.0")},
                 x,
                 kFloat,
                 {5}},
                {1, -9, 8, 7, 0});
}

TEST(Elementwise, blends_and_products) {
  const std::vector<OneNode::In> three = {
      {kFloat, {2}, {1, 2}}, {kFloat, {2}, {3, 4}}, {kFloat, {2}, {2, 8}}};
  expect_values({"aten.addcmul.default",
                 {kX, tensor("tensor1", "z"), tensor("tensor2", "w"), real("value", "0.5")},
                 three,
                 kFloat,
                 {2}},
                {4, 18});
  expect_values({"aten.addcdiv.default",
                 {kX, tensor("tensor1", "z"), tensor("tensor2", "w"), integer("value", 2)},
                 three,
                 kFloat,
                 {2}},
                {4, 3});
  expect_values({"aten.lerp.Scalar",
                 {kX, tensor("end", "z"), real("weight", "0.25")},
                 {three[0], three[1]},
                 kFloat,
                 {2}},
                {1.5, 2.5});
  expect_values(
      {"aten.hypot.default", {kX, kOther}, {{kFloat, {1}, {3}}, {kFloat, {1}, {4}}}, kFloat, {1}},
      {5});
  expect_values({"aten.xlogy.Tensor",
                 {kX, kOther},
                 {{kFloat, {2}, {0, 2}}, {kFloat, {2}, {0, 1}}},
                 kFloat,
                 {2}},
                {0, 0});
  expect_values({"aten.fmax.default",
                 {kX, kOther},
                 {{kFloat, {3}, {kNan, 1, kNan}}, {kFloat, {3}, {2, kNan, kNan}}},
                 kFloat,
                 {3}},
                {2, 1, kNan});
}

TEST(Elementwise, shifts_multiply_and_divide_rounding_down) {
  expect_values({"aten.bitwise_left_shift.Tensor_Scalar",
                 {kX, integer("other", 3)},
                 {{kInt, {2}, {5, -3}}},
                 kInt,
                 {2}},
                {40, -24});
  expect_values({"aten.bitwise_right_shift.Tensor_Scalar",
                 {kX, integer("other", 2)},
                 {{kLong, {3}, {9, -9, -8}}},
                 kLong,
                 {3}},
                {2, -3, -2});
  expect_values(
      {"aten.__lshift__.Scalar", {kX, integer("other", 40)}, {{kInt, {1}, {1}}}, kInt, {1}}, {0});
}

TEST(Elementwise, floor_division_of_floats_rounds_down_and_keeps_infinities) {
  expect_values({"aten.div.Tensor_mode",
                 {kX, kOther, text("rounding_mode", "floor")},
                 {{kFloat, {5}, {7, -7, 1, 6, -1}}, {kFloat, {5}, {2, 2, 0, 3, kInf}}},
                 kFloat,
                 {5}},
                {3, -4, kInf, 2, -1});
  expect_values({"aten.round.decimals",
                 {kX, integer("decimals", 1)},
                 {{kFloat, {2}, {1.26, -0.34}}},
                 kFloat,
                 {2}},
                {1.3, -0.3});
}

TEST(Activations, of_the_exponential_kind) {
  const Doubles at = {-40, -2, -0.5, 0, 0.5, 2, 40};
  expect_formula("aten.elu.default", {real("alpha", "2.0")}, at,
                 [](double x) { return x > 0 ? x : 2 * std::expm1(x); });
  expect_formula("aten.celu.default", {real("alpha", "2.0")}, at,
                 [](double x) { return x > 0 ? x : 2 * std::expm1(x / 2); });
  expect_formula("aten.selu.default", {}, at, [](double x) {
    return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * std::expm1(x));
  });
  expect_formula("aten.softplus.default", {integer("beta", 2)}, at,
                 [](double x) { return x > 10 ? x : std::log1p(std::exp(2 * x)) / 2; });
  expect_formula("aten.mish.default", {}, at,
                 [](double x) { return x * std::tanh(std::log1p(std::exp(x))); });
  expect_formula("aten.log_sigmoid.default", {}, at,
                 [](double x) { return -std::log1p(std::exp(-x)); });
}

TEST(Activations, of_straight_lines) {
  const Doubles at = {-5, -3, -1, 0, 0.25, 1, 3, 5};
  expect_formula("aten.hardswish.default", {}, at,
                 [](double x) { return x * std::min(std::max(x + 3, 0.0), 6.0) / 6; });
  expect_formula("aten.hardsigmoid.default", {}, at,
                 [](double x) { return std::min(std::max(x + 3, 0.0), 6.0) / 6; });
  expect_formula("aten.hardshrink.default", {real("lambd", "0.5")}, at,
                 [](double x) { return std::abs(x) > 0.5 ? x : 0; });
  expect_formula("aten.softshrink.default", {real("lambd", "0.5")}, at, [](double x) {
    return x > 0.5 ? x - 0.5 : x < -0.5 ? x + 0.5 : 0;
  });
  expect_formula("aten.threshold.default", {real("threshold", "0.5"), real("value", "9.0")}, at,
                 [](double x) { return x > 0.5 ? x : 9; });
}

TEST(Activations, prelu_has_a_slope_for_each_channel_and_glu_gates) {
  expect_values({"aten.prelu.default",
                 {kX, tensor("weight", "z")},
                 {{kFloat, {1, 2, 2}, {-1, 2, -3, 4}}, {kFloat, {2}, {0.5, 0.25}}},
                 kFloat,
                 {1, 2, 2}},
                {-0.5, 2, -0.75, 4});
  expect_values(
      {"aten.glu.default", {kX, integer("dim", -1)}, {{kFloat, {4}, {1, 2, 0, 0}}}, kFloat, {2}},
      {0.5, 1});
}

TEST(Elementwise, the_sign_of_a_nan_is_0) {
  for (const char* op : {"aten.sign.default", "aten.sgn.default"})
    expect_values({op, {kX}, {{kFloat, {4}, {kNan, -kInf, -0.0, 2}}}, kFloat, {4}}, {0, -1, 0, 1});
}

}  // namespace
}  // namespace kiln
