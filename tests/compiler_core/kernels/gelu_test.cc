// The exact GELU that CUDA kernels print as one function where its results are stored as halves.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler_core/ir/text.h"
#include "tests/compiler_core/kernels/kernel_harness.h"
#include "tests/support/fake_cuda/host_launch.h"

namespace kiln {
namespace {

constexpr const char* kSteps[] = {
    "%9 = mul %2 %4 : f32[N]\n%10 = erf %9 : f32[N]\n"
    "%11 = add %6 %10 : f32[N]\n%12 = mul %2 %8 : f32[N]\n"
    "%13 = mul %11 %12 : f32[N]\n",
    "%9 = mul %4 %2 : f32[N]\n%10 = erf %9 : f32[N]\n"
    "%11 = add %10 %6 : f32[N]\n%12 = mul %2 %11 : f32[N]\n"
    "%13 = mul %12 %8 : f32[N]\n"};

// GELU of a vector in the order of one of kSteps; `ending`: what the graph returns of %13 and others.
Graph gelu(const std::string& input, std::string steps, const std::string& ending, int64_t size) {
  std::string text = "kiln.graph 1\n%0 = input 0 : " + input + "[N]\n%1 = cast %0 : f32[N]\n" +
                     "%2 = neg %1 : f32[N]\n%3 = constant 0x1.6a09e6p-1 : f32[]\n"
                     "%4 = view %3 strides=[0] offset=[0] : f32[N]\n%5 = constant 0x1p+0 : f32[]\n"
                     "%6 = view %5 strides=[0] offset=[0] : f32[N]\n%7 = constant 0x1p-1 : f32[]\n"
                     "%8 = view %7 strides=[0] offset=[0] : f32[N]\n" +
                     steps + ending;
  for (size_t at = 0; (at = text.find("[N]", at)) != std::string::npos;)
    text.replace(at, 3, "[" + std::to_string(size) + "]");
  const auto graph = parse_graph(text);
  EXPECT_TRUE(graph) << graph.error().message;
  return *graph;
}

Source printed(const Graph& graph) {
  const auto source = lower_to_source(
      {graph, Family::kPointwise, {}},
      *Schedule::parse("cuda.pointwise lanes=4 threads=256 unroll=1 map=0"), testing::kHopper);
  EXPECT_TRUE(source) << source.error().message;
  return *source;
}

bool is_one_function(const Graph& graph) {
  return printed(graph).text.find("op_gelu_roughly(v") != std::string::npos;
}

TEST(Gelu, IsOneFunctionWhereHalvesAreStored) {
  for (const char* steps : kSteps)
    for (const std::string half : {"bf16", "f16"}) {
      const std::string stored = "%14 = cast %13 : " + half + "[N]\nreturn %14\n";
      EXPECT_TRUE(is_one_function(gelu(half, steps, stored, 64))) << steps;
    }
}

TEST(Gelu, IsComputedInStepsForAnF32) {
  EXPECT_FALSE(is_one_function(gelu("bf16", kSteps[0], "return %13\n", 64)));
}

TEST(Gelu, IsComputedInStepsWhereAStepIsReadElsewhere) {
  EXPECT_FALSE(is_one_function(
      gelu("bf16", kSteps[0], "%14 = add %13 %10 : f32[N]\n%15 = cast %14 : bf16[N]\nreturn %15\n",
           64)));
  EXPECT_FALSE(is_one_function(
      gelu("bf16", kSteps[0],
           "%14 = cast %13 : bf16[N]\n%15 = cast %11 : bf16[N]\nreturn %14 %15\n", 64)));
}

// The place of a finite half among those of its type, in order.
int order(uint16_t bits) {
  return (bits & 0x8000) != 0 ? -(bits & 0x7fff) : bits;
}

// Every half there is. Below -5.5, where results are less than 1e-7, they fall to zero.
TEST(Gelu, IsWithinAUnitInTheLastPlaceOfAHalf) {
  for (const char* type : {"bf16", "f16"}) {
    const DType dtype = std::string(type) == "bf16" ? DType::kBF16 : DType::kF16;
    constexpr int64_t kAll = 1 << 16;
    const Graph graph =
        gelu(type, kSteps[0], "%14 = cast %13 : " + std::string(type) + "[N]\nreturn %14\n", kAll);
    std::vector<Tensor> inputs;
    inputs.emplace_back(dtype, std::vector<int64_t>{kAll});
    for (int64_t i = 0; i < kAll; ++i) inputs[0].as<uint16_t>()[i] = static_cast<uint16_t>(i);
    const auto results = testing::run_on_fake_gpu(printed(graph), inputs);
    ASSERT_TRUE(results) << results.error().message;
    Tensor wanted(dtype, {kAll});
    double before = 0;
    for (int64_t i = 0; i < kAll; ++i) {
      const double x = -inputs[0].get(i), got = (*results)[0].get(i);
      const double want = std::isinf(x) && x > 0 ? x : 0.5 * x * std::erfc(-x / std::sqrt(2));
      if (std::isnan(x) || std::isnan(want)) {
        ASSERT_TRUE(std::isnan(got)) << x;
        continue;
      }
      wanted.set(i, want);
      if (x < -5.5) {
        ASSERT_LE(before, got) << x;  // the bits of -x grow
        ASSERT_TRUE(std::signbit(got) && std::fabs(got) <= 1.2e-7) << x;
        before = got;
      } else {
        before = -1;
        ASSERT_LE(
            std::abs(order((*results)[0].as<uint16_t>()[i]) - order(wanted.as<uint16_t>()[i])), 1)
            << type << " " << x << ": " << got << " instead of " << want;
      }
    }
  }
}

}  // namespace
}  // namespace kiln
