// Pooling and convolution lowerings against loops over windows.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "compiler_core/frontend/lowering.h"
#include "tests/compiler_core/frontend/model_text.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT: the vocabulary of these tests
using Doubles = std::vector<double>;

Doubles numbers(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  Doubles values(count);
  for (double& value : values) value = static_cast<double>(static_cast<int>(random() % 41) - 20);
  return values;
}

// The outputs of one node with float inputs x, z; its outputs are named y and p (i64 positions).
Result<std::vector<Doubles>> run(const std::string& op, const std::vector<std::string>& arguments,
                                 const std::vector<std::vector<int64_t>>& shapes,
                                 const std::vector<Doubles>& values, std::vector<int64_t> result) {
  ModelText model;
  const char* const names[] = {"x", "z"};
  for (size_t i = 0; i < shapes.size(); ++i) model.input(names[i], kFloat, shapes[i]);
  model.node(op, arguments, "y", kFloat, result).output("y");
  TRY(const ExportedProgram program, lower(model.json()));
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < shapes.size(); ++i)
    tensors.push_back(make_tensor(DType::kF32, shapes[i], values[i]));
  std::vector<const Tensor*> pointers;
  for (const Tensor& each : tensors) pointers.push_back(&each);
  TRY(const std::vector<Tensor> outputs, interpret(program.graph, pointers));
  std::vector<Doubles> all;
  for (const Tensor& output : outputs) all.push_back(values_of(output));
  return all;
}

void expect_near(const Result<std::vector<Doubles>>& got, const Doubles& expected) {
  ASSERT_TRUE(got) << got.error().message;
  ASSERT_EQ((*got)[0].size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR((*got)[0][i], expected[i], 1e-4) << "element " << i;
}

struct Pool {
  int64_t h, w, size, stride, padding, dilation = 1;
  int64_t out_h, out_w;
};

// Of planes of h x w: `maximum`, or the mean over `size` squared (or the elements inside).
Doubles pooled(const Doubles& x, const Pool& p, bool maximum, bool inside_only) {
  Doubles result;
  const int64_t planes = static_cast<int64_t>(x.size()) / (p.h * p.w);
  for (int64_t c = 0; c < planes; ++c)
    for (int64_t i = 0; i < p.out_h; ++i)
      for (int64_t j = 0; j < p.out_w; ++j) {
        double best = -INFINITY, sum = 0;
        int inside = 0, counted = 0;
        for (int64_t a = 0; a < p.size; ++a)
          for (int64_t e = 0; e < p.size; ++e) {
            const int64_t y = i * p.stride - p.padding + a * p.dilation;
            const int64_t z = j * p.stride - p.padding + e * p.dilation;
            counted += y < p.h + p.padding && z < p.w + p.padding;
            if (y < 0 || z < 0 || y >= p.h || z >= p.w) continue;
            ++inside;
            const double value = x[static_cast<size_t>((c * p.h + y) * p.w + z)];
            best = std::max(best, value);
            sum += value;
          }
        result.push_back(maximum ? best : sum / (inside_only ? inside : counted));
      }
  return result;
}

TEST(Pooling, MaximaAndMeansAgreeWithLoops) {
  const std::vector<Pool> pools = {{9, 8, 3, 2, 1, 1, 5, 4},
                                   {6, 7, 2, 2, 0, 1, 3, 3},
                                   {9, 9, 3, 1, 1, 2, 7, 7},
                                   {20, 13, 9, 1, 4, 1, 20, 13}};
  for (const Pool& p : pools) {
    const Doubles x = numbers(static_cast<size_t>(6 * p.h * p.w), 1);
    const std::vector<int64_t> result = {2, 3, p.out_h, p.out_w};
    std::vector<std::string> arguments = {
        tensor("self", "x"), integers("kernel_size", {p.size, p.size}),
        integers("stride", {p.stride, p.stride}), integers("padding", {p.padding, p.padding})};
    if (p.dilation == 1) {
      expect_near(run("aten.avg_pool2d.default", arguments, {{2, 3, p.h, p.w}}, {x}, result),
                  pooled(x, p, false, false));
      arguments.push_back(flag("count_include_pad", false));
      expect_near(run("aten.avg_pool2d.default", arguments, {{2, 3, p.h, p.w}}, {x}, result),
                  pooled(x, p, false, true));
      arguments.pop_back();
    }
    arguments.push_back(integers("dilation", {p.dilation, p.dilation}));
    expect_near(run("aten.max_pool2d.default", arguments, {{2, 3, p.h, p.w}}, {x}, result),
                pooled(x, p, true, false));
  }
}

TEST(Pooling, CeilModeKeepsWindowsThatBeginInside) {
  const Pool p{6, 8, 3, 2, 1, 1, 4, 5};
  const Doubles x = numbers(48, 2);
  const std::vector<std::string> arguments = {tensor("self", "x"), integers("kernel_size", {3, 3}),
                                              integers("stride", {2, 2}),
                                              integers("padding", {1, 1}), flag("ceil_mode", true)};
  expect_near(run("aten.max_pool2d.default", arguments, {{1, 1, 6, 8}}, {x}, {1, 1, 4, 5}),
              pooled(x, p, true, false));
  expect_near(run("aten.avg_pool2d.default", arguments, {{1, 1, 6, 8}}, {x}, {1, 1, 4, 5}),
              pooled(x, p, false, false));
}

TEST(Pooling, AdaptiveWindowsMayBeUneven) {
  const Doubles x = numbers(70, 3);
  for (const auto& [out_h, out_w] : {std::pair{5, 3}, {1, 1}, {5, 7}, {10, 2}}) {
    Doubles mean, max;
    for (int i = 0; i < out_h; ++i)
      for (int j = 0; j < out_w; ++j) {
        const int top = i * 10 / out_h, bottom = ((i + 1) * 10 + out_h - 1) / out_h;
        const int left = j * 7 / out_w, right = ((j + 1) * 7 + out_w - 1) / out_w;
        double sum = 0, best = -INFINITY;
        for (int a = top; a < bottom; ++a)
          for (int e = left; e < right; ++e) {
            sum += x[static_cast<size_t>(a * 7 + e)];
            best = std::max(best, x[static_cast<size_t>(a * 7 + e)]);
          }
        mean.push_back(sum / ((bottom - top) * (right - left)));
        max.push_back(best);
      }
    const std::vector<std::string> arguments = {tensor("self", "x"),
                                                integers("output_size", {out_h, out_w})};
    expect_near(run("aten.adaptive_avg_pool2d.default", arguments, {{1, 1, 10, 7}}, {x},
                    {1, 1, out_h, out_w}),
                mean);
    expect_near(run("aten.adaptive_max_pool2d.default", arguments, {{1, 1, 10, 7}}, {x},
                    {1, 1, out_h, out_w}),
                max);
  }
}

TEST(Pooling, TheBackwardOfAMeanSpreadsItEvenly) {
  const Pool p{7, 6, 3, 2, 1, 1, 4, 3};
  const Doubles g = numbers(12, 4);
  Doubles expected(42, 0);
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 3; ++j)
      for (int a = 0; a < 3; ++a)
        for (int e = 0; e < 3; ++e) {
          const int y = i * 2 - 1 + a, z = j * 2 - 1 + e;
          if (y >= 0 && z >= 0 && y < p.h && z < p.w)
            expected[static_cast<size_t>(y * 6 + z)] += g[static_cast<size_t>(i * 3 + j)] / 9;
        }
  expect_near(run("aten.avg_pool2d_backward.default",
                  {tensor("grad_output", "x"), tensor("self", "z"), integers("kernel_size", {3, 3}),
                   integers("stride", {2, 2}), integers("padding", {1, 1}),
                   flag("ceil_mode", false), flag("count_include_pad", true)},
                  {{1, 1, 4, 3}, {1, 1, 7, 6}}, {g, Doubles(42, 0)}, {1, 1, 7, 6}),
              expected);
}

TEST(Pooling, RefusesWindowsThatDoNotFit) {
  EXPECT_FALSE(run("aten.max_pool2d.default",
                   {tensor("self", "x"), integers("kernel_size", {5, 5})}, {{1, 1, 3, 3}},
                   {Doubles(9, 0)}, {1, 1, 1, 1}));
  EXPECT_FALSE(
      run("aten.max_pool2d.default",
          {tensor("self", "x"), integers("kernel_size", {2, 2}), integers("stride", {0, 0})},
          {{1, 1, 4, 4}}, {Doubles(16, 0)}, {1, 1, 2, 2}));
}

TEST(Convolutions, SameKeepsTheSizesWithTheOddZeroBehind) {
  // 1 2 3 4 with a window of 2 that sums: the zero comes last.
  expect_near(run("aten.conv1d.padding",
                  {tensor("input", "x"), tensor("weight", "z"), text("padding", "same")},
                  {{1, 1, 4}, {1, 1, 2}}, {{1, 2, 3, 4}, {1, 1}}, {1, 1, 4}),
              {3, 5, 7, 4});
}

TEST(Convolutions, AnImageWithoutABatchIsABatchOfOne) {
  expect_near(run("aten.conv2d.default", {tensor("input", "x"), tensor("weight", "z")},
                  {{1, 2, 3}, {2, 1, 1, 2}}, {{1, 2, 3, 4, 5, 6}, {1, 10, 0, 1}}, {2, 2, 2}),
              {21, 32, 54, 65, 2, 3, 5, 6});
}

TEST(Convolutions, RefusesWeightsOfAnotherRank) {
  EXPECT_FALSE(run("aten.conv2d.default", {tensor("input", "x"), tensor("weight", "z")},
                   {{1, 1, 2, 3}, {2, 1}}, {Doubles(6, 0), {1, 10}}, {1, 2, 2, 2}));
}

}  // namespace
}  // namespace kiln
