#include "worker/runner/tolerance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"

namespace kiln::runner {
namespace {

Graph graph_of(std::string_view text) {
  auto graph = parse_graph(text);
  EXPECT_TRUE(graph.has_value()) << (graph ? "" : graph.error().message);
  return *std::move(graph);
}

Tensor floats(std::initializer_list<double> values, DType dtype = DType::kF32) {
  Tensor tensor(dtype, {static_cast<int64_t>(values.size())});
  int64_t i = 0;
  for (const double value : values) tensor.set(i++, value);
  return tensor;
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
const Tolerance kTight{1e-5, false};

TEST(Tolerance, LongerSumsAndCoarserTypesAllowMore) {
  const auto sum = [](const std::string& dtype, const std::string& n) {
    return tolerance_of(graph_of("kiln.graph 1\n%0 = input 0 : " + dtype + "[4," + n + "]\n" +
                                 "%1 = reduce_sum %0 axes=[1] : " + dtype + "[4]\nreturn %1\n"),
                        {})
        .relative;
  };
  EXPECT_LT(sum("f64", "64"), 1e-12);
  EXPECT_LT(sum("f32", "64"), sum("f32", "65536"));
  EXPECT_LT(sum("f32", "65536"), sum("f16", "64"));
  EXPECT_LT(sum("f16", "64"), sum("bf16", "64"));
  EXPECT_LT(sum("f32", "64"), 3e-5);
}

TEST(Tolerance, ProductsConvolutionsAndScattersHaveTermsToo) {
  const auto relative = [](const std::string& nodes) {
    return tolerance_of(graph_of("kiln.graph 1\n" + nodes), {}).relative;
  };
  const auto product = [&](const std::string& n) {
    return relative("%0 = input 0 : f32[4," + n + "]\n%1 = reduce_prod %0 axes=[1] : f32[4]\n" +
                    "return %1\n");
  };
  EXPECT_LT(product("64"), product("65536"));
  const auto convolution = [&](const std::string& channels) {
    return relative("%0 = input 0 : f32[1," + channels + ",9]\n%1 = input 1 : f32[2," + channels +
                    ",3]\n%2 = convolution %0 %1 stride=[1] dilation=[1] low=[0] high=[0] " +
                    "groups=1 : f32[1,2,7]\nreturn %2\n");
  };
  EXPECT_LT(convolution("1"), convolution("512"));
  const auto scatter = [&](const std::string& combine) {
    return relative("%0 = input 0 : f32[4]\n%1 = input 1 : i64[9999]\n%2 = input 2 : f32[9999]\n" +
                    std::string("%3 = scatter %0 %1 %2 combine=") + combine +
                    " : f32[4]\nreturn %3\n");
  };
  EXPECT_LT(scatter("set"), scatter("add"));
}

TEST(Tolerance, AnInputInHalfPrecisionAloneAllowsNothing) {
  const Graph graph = graph_of(
      "kiln.graph 1\n%0 = input 0 : bf16[8]\n%1 = cast %0 : f32[8]\n"
      "%2 = exp %1 : f32[8]\nreturn %2\n");
  EXPECT_LT(tolerance_of(graph, {}).relative, 3e-5);
}

// A sum of products as tensor cores of compute capability 9.0 add those of 8-bit floats: 32 terms and
// what they are added to, each cut to 13 bits below the largest; from zero again after `promoted`.
double sum_in_13_bits(const std::vector<double>& products, size_t promoted) {
  constexpr size_t kAtOnce = 32;
  double all = 0, part = 0;
  for (size_t first = 0; first < products.size(); first += kAtOnce) {
    double most = std::fabs(part);
    for (size_t i = first; i < first + kAtOnce; ++i) most = std::max(most, std::fabs(products[i]));
    const double place = std::ldexp(1.0, std::ilogb(most) - 13);
    part = std::trunc(part / place) * place;
    for (size_t i = first; i < first + kAtOnce; ++i)
      part += std::trunc(products[i] / place) * place;
    if ((first + kAtOnce) % promoted != 0) continue;
    all += part;
    part = 0;
  }
  return all + part;
}

// Kernels of 8-bit floats that add up each 128 products in f32 are right, those that leave a long sum
// to the tensor cores, or a step out, are not, even where the result is not rounded.
TEST(Tolerance, SumsOf8BitFloatsArePromoted) {
  const Tolerance allowed = tolerance_of(graph_of(R"(kiln.graph 1
%0 = input 0 : f8e4m3[1,4096]
%1 = cast %0 : f32[1,4096]
%2 = cast %1 : bf16[1,4096]
%3 = input 1 : f8e4m3[4096,1]
%4 = cast %3 : f32[4096,1]
%5 = cast %4 : bf16[4096,1]
%6 = matmul %2 %5 : f32[1,1]
return %6
)"),
                                         {});
  Tensor factors(DType::kF8E4M3, {4096});
  for (int64_t i = 0; i < factors.numel(); ++i)
    factors.set(i, 0.5 + static_cast<double>(i * 7919 % 4096) / 4096);
  std::vector<double> products;
  double exact = 0;
  for (int64_t i = 0; i < factors.numel(); ++i) {
    products.push_back(factors.get(i) * factors.get((i * 31 + 5) % 4096));
    exact += products.back();
  }
  const auto is_right = [&](double got) {
    return !compare(floats({got}), floats({exact}), nullptr, allowed);
  };
  EXPECT_TRUE(is_right(sum_in_13_bits(products, 128)));
  EXPECT_FALSE(is_right(sum_in_13_bits(products, 4096)));
  products.resize(4096 - 256);
  EXPECT_FALSE(is_right(sum_in_13_bits(products, 128)));
}

TEST(Compare, EqualAndNearlyEqualAreRight) {
  const Tensor want = floats({1, -2, 0, 100});
  EXPECT_EQ(compare(floats({1, -2, 0, 100}), want, nullptr, kTight), std::nullopt);
  EXPECT_EQ(compare(floats({1.000001, -2, 1e-5, 100.0001}), want, nullptr, kTight), std::nullopt);
}

TEST(Compare, TheFirstWrongElementIsNamed) {
  const auto difference =
      compare(floats({1, -2.5, 0, 99}), floats({1, -2, 0, 100}), nullptr, kTight);
  ASSERT_TRUE(difference.has_value());
  EXPECT_EQ(difference->first, 1);
  EXPECT_EQ(difference->count, 2);
}

TEST(Compare, NanAndInfinityMustMeetTheirLike) {
  const Tensor want = floats({kNan, kInf, -kInf, 1});
  EXPECT_EQ(compare(floats({kNan, kInf, -kInf, 1}), want, nullptr, kTight), std::nullopt);
  EXPECT_EQ(compare(floats({0, kInf, -kInf, 1}), want, nullptr, kTight)->first, 0);
  EXPECT_EQ(compare(floats({kNan, -kInf, -kInf, 1}), want, nullptr, kTight)->first, 1);
  EXPECT_EQ(compare(floats({kNan, kInf, -3e38, 1}), want, nullptr, kTight)->first, 2);
  EXPECT_EQ(compare(floats({kNan, kInf, -kInf, kNan}), want, nullptr, kTight)->first, 3);
}

TEST(Compare, IntegersMustBeEqual) {
  Tensor want(DType::kI64, {2}), got(DType::kI64, {2});
  want.set_int(0, int64_t{1} << 60);
  got.set_int(0, (int64_t{1} << 60) + 1);  // not told apart as doubles
  EXPECT_EQ(compare(got, want, nullptr, kTight)->count, 1);
  got.set_int(0, int64_t{1} << 60);
  EXPECT_EQ(compare(got, want, nullptr, kTight), std::nullopt);
}

TEST(Compare, AGraphThatStraysByItselfExcusesAsMuch) {
  const Tensor want = floats({1, 1}), declared = floats({1.01, 1});
  EXPECT_EQ(compare(floats({1.02, 1}), want, &declared, kTight), std::nullopt);
  EXPECT_EQ(compare(floats({1.02, 1.02}), want, &declared, kTight)->first, 1);
  EXPECT_EQ(compare(floats({1.2, 1}), want, &declared, kTight)->first, 0);
}

TEST(Compare, AStepExcusesOneElementIn65536) {
  Tensor want(DType::kBool, {1 << 17}), got(DType::kBool, {1 << 17});
  got.set_int(5, 1);
  got.set_int(9, 1);
  EXPECT_EQ(compare(got, want, nullptr, {0, true}), std::nullopt);
  EXPECT_EQ(compare(got, want, nullptr, {0, false})->first, 5);
  got.set_int(11, 1);
  EXPECT_EQ(compare(got, want, nullptr, {0, true})->count, 3);
}

// Values that are quantised fall to a neighbour where sums go in another order: more of them than fall
// on the other side of a comparison.
TEST(Compare, AGraphThatQuantisesExcusesNeighbours) {
  constexpr int64_t kElements = 1 << 13;  // 4 and 2 neighbours, and none else
  for (const DType type : {DType::kI8, DType::kU8, DType::kF32}) {
    const double step = is_float(type) ? 0.25 : 1;
    Tensor want(type, {kElements});
    for (int64_t i = 0; i < kElements; ++i) want.set(i, 2);
    Tensor got = want.clone();
    const double scale = 4 * step;
    const Tolerance quantises{0, true, scale, true}, without{0, true, scale};
    for (int64_t i = 0; i < 6; ++i) got.set(i, 2 + (i % 2 == 0 ? step : -step));
    EXPECT_EQ(compare(got, want, nullptr, quantises), std::nullopt) << to_string(type);
    EXPECT_EQ(compare(got, want, nullptr, without)->count, 6) << to_string(type);
    got.set(6, 2 + step);
    EXPECT_EQ(compare(got, want, nullptr, quantises)->neighbours, 7) << to_string(type);
    got.set(6, 2);
    got.set(7, 2 + 2 * step);
    EXPECT_EQ(compare(got, want, nullptr, quantises)->count, 7) << "no neighbour";
  }
  Tensor want(DType::kI32, {4}), got(DType::kI32, {4});
  got.set_int(2, 1);
  EXPECT_EQ(compare(got, want, nullptr, {0, true, -1, true})->first, 2)
      << "an index may not be off by one";
  Tensor few(DType::kI8, {255}), one_off = few.clone();
  one_off.set_int(254, 1);
  EXPECT_EQ(compare(one_off, few, nullptr, {0, true, -1, true})->first, 254)
      << "so few must be right";
}

TEST(ToleranceOf, OnlyRoundingToIntegersOf8BitsQuantises) {
  const auto quantises = [](const char* last) {
    const std::string text =
        std::string("kiln.graph 1\n%0 = input 0 : f32[4]\n") + last + "return %1\n";
    return tolerance_of(*parse_graph(text), {}).quantises;
  };
  EXPECT_TRUE(quantises("%1 = round %0 : f32[4]\n"));
  EXPECT_TRUE(quantises("%1 = cast %0 : i8[4]\n"));
  EXPECT_FALSE(quantises("%1 = cast %0 : i64[4]\n"));
  EXPECT_FALSE(quantises("%1 = floor %0 : f32[4]\n"));
  EXPECT_FALSE(quantises("%1 = lt %0 %0 : bool[4]\n"));
}

TEST(Compare, IntegersThatAreMadeOf8BitsHaveNeighbours) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {4}), q = b.cast(b.unary(Op::kRound, x), DType::kI8);
  const NodeId wide = b.cast(q, DType::kI32), index = b.cast(x, DType::kI32);
  const Graph graph = b.finish({q, wide, index}).value();
  EXPECT_EQ(integer_scale(graph, graph.outputs()[0]), 4);
  EXPECT_EQ(integer_scale(graph, graph.outputs()[1]), 4);
  EXPECT_EQ(integer_scale(graph, graph.outputs()[2]), 0);
}

TEST(Compare, ElementsAreDescribedWithTheirPosition) {
  Tensor want(DType::kF32, {4, 3}), got(DType::kF32, {4, 3});
  got.set(7, 0.5);
  EXPECT_EQ(describe_element(got, want, 7), "element 7 [2,1] is 0.5, expected 0");
}

}  // namespace
}  // namespace kiln::runner
