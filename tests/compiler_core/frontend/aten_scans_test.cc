// Scans other than sums, step by step, and integrals of lines.
#include <cmath>

#include "tests/compiler_core/frontend/one_node.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT: the vocabulary of these tests

OneNode scan(const std::string& op, int dim, const std::vector<int64_t>& sizes, const Doubles& x,
             int code = kFloat, int result = kFloat) {
  return {op, {kX, integer("dim", dim)}, {{code, sizes, x}}, result, sizes};
}

TEST(Scans, products) {
  const Doubles x = {1, 2, 3, -4, 0, 6};
  expect_values(scan("aten.cumprod.default", 1, {2, 3}, x), {1, 2, 6, -4, 0, 0});
  expect_values(scan("aten.cumprod.default", 0, {2, 3}, x), {1, 2, 3, -4, 0, 18});
  expect_values(scan("aten.cumprod.default", -1, {3}, {2, 3, 4}, kInt, kLong), {2, 6, 24});
  EXPECT_FALSE(scan("aten.cumprod.default", 0, {16385}, Doubles(16385, 1)).run());
}

TEST(Scans, logarithms_of_sums_of_exponentials) {
  const Doubles x = {0.5, -1, 2, -kInf, 700, 710};
  expect_values(scan("aten.logcumsumexp.default", 1, {2, 3}, x),
                {0.5, std::log(std::exp(0.5) + std::exp(-1)),
                 std::log(std::exp(0.5) + std::exp(-1) + std::exp(2)), -kInf, 700,
                 710 + std::log1p(std::exp(-10))});
}

// The value so far, and the last place it was seen at.
TEST(Scans, extrema_with_their_places) {
  const Doubles x = {2, 1, 2, 5, 4, kNan, 7};
  const std::vector<std::pair<std::string, std::pair<Doubles, Doubles>>> cases = {
      {"aten.cummax.default", {{2, 2, 2, 5, 5, kNan, kNan}, {0, 0, 2, 3, 3, 5, 5}}},
      {"aten.cummin.default", {{2, 1, 1, 1, 1, kNan, kNan}, {0, 1, 1, 1, 1, 5, 5}}}};
  for (const auto& [op, expected] : cases) {
    ModelText model;
    model.input("x", kFloat, {7})
        .declare("y", kFloat, {"7"})
        .declare("i", kLong, {"7"})
        .raw_node(op, {kX, integer("dim", 0)},
                  R"([{"as_tensor":{"name":"y"}},{"as_tensor":{"name":"i"}}])")
        .output("y")
        .output("i");
    const auto program = lower(model.json());
    ASSERT_TRUE(program) << program.error().message;
    const Tensor input = make_tensor(DType::kF32, {7}, x);
    const Tensor* inputs[] = {&input};
    const auto got = interpret(program->graph, inputs);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(values_of((*got)[1]), expected.second) << op;
    const Doubles values = values_of((*got)[0]);
    for (size_t i = 0; i < 7; ++i)
      EXPECT_TRUE(values[i] == expected.first[i] || (i >= 5 && std::isnan(values[i])))
          << op << " at " << i << ": " << values[i];
  }
}

TEST(Scans, integrals_by_trapezoids) {
  const std::string y = tensor("y", "x"), x = tensor("x", "z");
  const OneNode::In line = {kFloat, {2, 3}, {1, 2, 4, 0, 1, 5}};
  expect_values({"aten.trapezoid.dx", {y}, {line}, kFloat, {2}}, {4.5, 3.5});
  expect_values({"aten.trapz.dx", {y, real("dx", "2.0")}, {line}, kFloat, {2}}, {9, 7});
  expect_values({"aten.trapezoid.dx", {y, integer("dim", 0)}, {line}, kFloat, {3}},
                {0.5, 1.5, 4.5});
  expect_values({"aten.trapezoid.x", {y, x}, {line, {kFloat, {3}, {0, 1, 3}}}, kFloat, {2}},
                {1.5 + 6, 0.5 + 6});
  expect_values({"aten.cumulative_trapezoid.dx", {y}, {line}, kFloat, {2, 2}},
                {1.5, 4.5, 0.5, 3.5});
  expect_values(
      {"aten.cumulative_trapezoid.x", {y, x}, {line, {kFloat, {3}, {0, 1, 3}}}, kFloat, {2, 2}},
      {1.5, 7.5, 0.5, 6.5});
}

}  // namespace
}  // namespace kiln
