#include "worker/runner/prepared_workload.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>

#include "compiler_core/ir/text.h"
#include "tests/worker/prepared.h"

namespace kiln::runner {
namespace {

constexpr char kSymbolic[] =
    "kiln.graph 1\n"
    "s0 = symbol 1..4096 hint 24\n"
    "%0 = input 0 : f32[s0,8]\n"
    "%1 = mul %0 %0 : f32[s0,8]\n"
    "return %1\n";

using Made = test::PreparedOnCpu;

TEST(PreparedWorkload, IsMeasuredAtTheSizesItWasExportedWith) {
  EXPECT_EQ(Made(kSymbolic).inputs()[0].sizes(), (std::vector<int64_t>{24, 8}));
}

TEST(PreparedWorkload, TheSeedDecidesTheInputs) {
  const Made first(kSymbolic, 1), again(kSymbolic, 1), other(kSymbolic, 2);
  EXPECT_TRUE(std::ranges::equal(first.inputs()[0].bytes(), again.inputs()[0].bytes()));
  EXPECT_FALSE(std::ranges::equal(first.inputs()[0].bytes(), other.inputs()[0].bytes()));
}

TEST(PreparedWorkload, InputsLookNormal) {
  Made workload("kiln.graph 1\n%0 = input 0 : f32[100000]\nreturn %0\n");
  double sum = 0, squares = 0;
  for (const float x : workload.inputs()[0].as<float>()) {
    sum += x;
    squares += static_cast<double>(x) * x;
  }
  EXPECT_NEAR(sum / 1e5, 0, 0.02);
  EXPECT_NEAR(squares / 1e5, 1, 0.02);
}

TEST(PreparedWorkload, ExpectsTheInterpretersResult) {
  Made workload(kSymbolic);
  const float x = workload.inputs()[0].as<float>()[5];
  EXPECT_FLOAT_EQ(workload.expected()[0].as<float>()[5], x * x);
}

TEST(PreparedWorkload, AGraphOfRootsGetsInputsThatHaveThem) {
  Made workload("kiln.graph 1\n%0 = input 0 : f32[64]\n%1 = sqrt %0 : f32[64]\nreturn %1\n");
  for (const float y : workload.expected()[0].as<float>()) EXPECT_FALSE(std::isnan(y));
}

// An unrolled recurrence joins a value of each step.
TEST(PreparedWorkload, HoldsHundredsOfInputs) {
  std::string text = "kiln.graph 1\n", joined = "%400 = concat";
  for (int i = 0; i < 400; ++i) {
    text += fmt::format("%{0} = input {0} : f32[2]\n", i);
    joined += fmt::format(" %{}", i);
  }
  Made workload(text + joined + " axis=0 : f32[800]\nreturn %400\n");
  ASSERT_EQ(workload.inputs().size(), 400u);
  EXPECT_EQ(workload.expected()[0].as<float>()[799], workload.inputs()[399].as<float>()[1]);
}

TEST(RandomInputs, IndicesOfAGatherAreInRange) {
  auto graph = parse_graph(
      "kiln.graph 1\n"
      "%0 = input 0 : f32[3,5]\n"
      "%1 = input 1 : i64[400]\n"
      "%2 = gather %0 %1 : f32[400,5]\n"
      "return %2\n");
  ASSERT_TRUE(graph.has_value()) << graph.error().message;
  const auto inputs = test::drawn_inputs(*graph, {}, 9, Floats::kNormal);
  std::vector<int> seen(3);
  for (const int64_t index : inputs[1].as<int64_t>()) {
    ASSERT_TRUE(index >= 0 && index < 3) << index;
    ++seen[static_cast<size_t>(index)];
  }
  for (const int times : seen) EXPECT_GT(times, 0);
}

TEST(RandomInputs, IndicesOfAScatterNameAllItsRows) {
  auto graph = parse_graph(
      "kiln.graph 1\n"
      "%0 = input 0 : f32[40,5]\n"
      "%1 = input 1 : i64[2000]\n"
      "%2 = input 2 : f32[2000,5]\n"
      "%3 = scatter %0 %1 %2 combine=add : f32[40,5]\n"
      "return %3\n");
  ASSERT_TRUE(graph.has_value()) << graph.error().message;
  const auto inputs = test::drawn_inputs(*graph, {}, 9, Floats::kNormal);
  std::vector<int> seen(40);
  for (const int64_t index : inputs[1].as<int64_t>()) {
    ASSERT_TRUE(index >= 0 && index < 40) << index;
    ++seen[static_cast<size_t>(index)];
  }
  for (const int times : seen) EXPECT_GT(times, 0);
}

TEST(RandomInputs, IntegerDivisorsAreNeverZero) {
  auto graph = parse_graph(
      "kiln.graph 1\n%0 = input 0 : i32[500]\n%1 = input 1 : i32[500]\n"
      "%2 = div %0 %1 : i32[500]\nreturn %2\n");
  ASSERT_TRUE(graph.has_value()) << graph.error().message;
  const auto inputs = test::drawn_inputs(*graph, {}, 9, Floats::kNormal);
  for (const int32_t divisor : inputs[1].as<int32_t>()) EXPECT_NE(divisor, 0);
}

TEST(PreparedWorkload, HostileGraphsAreRefused) {
  const auto device = make_cpu_evaluation_device(1);
  EXPECT_EQ(PreparedWorkload::make(*device, "", 1).error().code, Code::kInvalidArgument);
  EXPECT_EQ(PreparedWorkload::make(*device, "kiln.graph 1\nreturn %0\n", 1).error().code,
            Code::kInvalidArgument);
  const auto huge = PreparedWorkload::make(
      *device, "kiln.graph 1\n%0 = input 0 : f32[1000000,1000000]\nreturn %0\n", 1);
  EXPECT_FALSE(huge.has_value());
}

TEST(PreparedWorkload, ARecipeForSomethingElseIsRefused) {
  Made workload(kSymbolic);
  const TensorSpec spec{DType::kF32, {Dim::symbol(0), 8}};
  EXPECT_TRUE(workload.workload().check_recipe({{spec}, {spec}, {}, 0, 0}));
  EXPECT_FALSE(workload.workload().check_recipe({{spec, spec}, {spec}, {}, 0, 0}));
  EXPECT_FALSE(workload.workload().check_recipe({{{DType::kF64, spec.shape}}, {spec}, {}, 0, 0}));
  EXPECT_FALSE(workload.workload().check_recipe({{spec}, {{DType::kF32, {8, 8}}}, {}, 0, 0}));
}

}  // namespace
}  // namespace kiln::runner
