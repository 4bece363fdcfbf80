// Special functions against known values, the C++ library and sums of their series.
#include <cmath>
#include <numbers>

#include "tests/compiler_core/frontend/one_node.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT: the vocabulary of these tests

constexpr double kGamma = std::numbers::egamma, kSquare = std::numbers::pi * std::numbers::pi;

void expect_function(const std::string& op, const Doubles& x, const Doubles& expected,
                     const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {kX};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const std::vector<int64_t> sizes = {static_cast<int64_t>(x.size())};
  expect_values({op, arguments, {{kDouble, sizes, x}}, kDouble, sizes}, expected);
}

TEST(SpecialFunctions, the_logarithm_of_gamma) {
  const Doubles x = {0.1, 0.5, 1, 1.5, 2, 3.7, 20, 1e5, -0.5, -1.25, -7.9, 0, -3, kInf};
  Doubles expected;
  for (const double each : x) expected.push_back(std::lgamma(each));
  expect_function("aten.lgamma.default", x, expected);
  expect_values({"aten.lgamma.default", {kX}, {{kLong, {2}, {5, 1}}}, kFloat, {2}},
                {std::log(24), 0});
}

TEST(SpecialFunctions, its_derivatives) {
  const double log2 = std::numbers::ln2;
  expect_function("aten.digamma.default", {1, 0.5, 2, 100, -0.5, 0, -2, kInf},
                  {-kGamma, -kGamma - 2 * log2, 1 - kGamma, 4.600161852738087,
                   2 - kGamma - 2 * log2, -kInf, kNan, kInf});
  expect_function("aten.polygamma.default", {1, 0.5, 2, -0.5, 0},
                  {kSquare / 6, kSquare / 2, kSquare / 6 - 1, kSquare / 2 + 4, kInf},
                  {integer("n", 1)});
  expect_function("aten.polygamma.default", {1}, {-kGamma}, {integer("n", 0)});
  EXPECT_FALSE(
      (OneNode{"aten.polygamma.default", {kX, integer("n", 2)}, {{kFloat, {1}, {1}}}, kFloat, {1}})
          .run());
}

// sum of (x/2)^(2k+n) / (k! (k+n)!)
double bessel(int n, double x) {
  double term = n == 0 ? 1 : x / 2, sum = 0;
  for (int k = 0; k < 300; ++k) {
    sum += term;
    term *= x * x / 4 / ((k + 1) * (k + 1 + n));
  }
  return sum;
}

TEST(SpecialFunctions, modified_bessel_functions) {
  const Doubles x = {0, 0.1, -1, 3.75, -12, 29.9, 30.1, -80};
  Doubles i0, i1, i0e, i1e;
  for (const double each : x) {
    i0.push_back(bessel(0, each));
    i1.push_back(bessel(1, each));
    i0e.push_back(i0.back() * std::exp(-std::abs(each)));
    i1e.push_back(i1.back() * std::exp(-std::abs(each)));
  }
  expect_function("aten.i0.default", x, i0);
  expect_function("aten.special_i1.default", x, i1);
  expect_function("aten.special_i0e.default", x, i0e);
  expect_function("aten.special_i1e.default", x, i1e);
  expect_function("aten.special_i0.default", {kInf, -kInf, kNan}, {kInf, kInf, kNan});
  expect_function("aten.special_i1.default", {kInf, -kInf}, {kInf, -kInf});
}

TEST(SpecialFunctions, the_normal_distribution_and_its_inverse) {
  const Doubles y = {-3.5, -2, -0.7, 0, 1e-3, 0.4, 1.5, 3};
  Doubles x, p, twice;
  for (const double each : y) {
    x.push_back(std::erf(each));
    p.push_back(std::erfc(-each / std::numbers::sqrt2) / 2);
  }
  expect_function("aten.erfinv.default", x, y);
  expect_function("aten.erfinv.default", {1, -1, 2}, {kInf, -kInf, kNan});
  expect_function("aten.special_ndtr.default", y, p);
  expect_function("aten.special_ndtri.default", p, y);
  expect_function("aten.special_entr.default", {0, 1, 0.5, -1, kNan},
                  {0, 0, 0.5 * std::numbers::ln2, -kInf, kNan});
}

}  // namespace
}  // namespace kiln
