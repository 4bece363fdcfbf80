// Gradients against the identity that defines them: a convolution is linear in each operand, so
// <conv(x, w), g> = <x, input gradient> = <w, weight gradient>. On small integers all is exact.
#include "compiler_core/frontend/decompositions_convolution.h"

#include <gtest/gtest.h>

#include <random>

#include "compiler_core/ir/interpreter.h"

namespace kiln {
namespace {

struct Case {
  std::vector<int64_t> x, w;
  ConvolutionAttr attr;
};

std::vector<Case> cases() {
  return {
      {{2, 3, 6, 7}, {4, 3, 3, 3}, {{1, 1}, {1, 1}, {1, 1}, {1, 1}, 1}},
      {{2, 4, 9, 8}, {6, 2, 3, 2}, {{2, 3}, {1, 2}, {0, 1}, {2, 0}, 2}},
      {{1, 3, 11}, {3, 1, 4}, {{3}, {2}, {1}, {0}, 3}},
      {{1, 2, 4, 5, 6}, {3, 2, 2, 3, 1}, {{1, 2, 2}, {1, 1, 1}, {0, 2, 0}, {1, 0, 0}, 1}},
      // More padding than the window reaches: the gradient's operand is cut.
      {{1, 1, 5, 5}, {2, 1, 2, 1}, {{1, 2}, {1, 1}, {3, 1}, {2, 2}, 1}},
  };
}

Shape shape_of(const std::vector<int64_t>& sizes) {
  return Shape(sizes.begin(), sizes.end());
}

Tensor random_tensor(const std::vector<int64_t>& sizes, std::mt19937& random) {
  Tensor tensor(DType::kF32, sizes);
  for (int64_t i = 0; i < tensor.numel(); ++i)
    tensor.set(i, static_cast<double>(static_cast<int>(random() % 7) - 3));
  return tensor;
}

double dot(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.numel(), b.numel());
  double sum = 0;
  for (int64_t i = 0; i < std::min(a.numel(), b.numel()); ++i) sum += a.get(i) * b.get(i);
  return sum;
}

TEST(ConvolutionGradients, AreTheAdjointsOfTheConvolution) {
  std::mt19937 random(3);
  for (const Case& each : cases()) {
    GraphBuilder b;
    const NodeId x = b.input(DType::kF32, shape_of(each.x));
    const NodeId w = b.input(DType::kF32, shape_of(each.w));
    const NodeId y = b.convolution(x, w, each.attr);
    ASSERT_TRUE(b.ok()) << b.error()->message;
    const Shape result = b.shape(y);
    const NodeId g = b.input(DType::kF32, result);
    const NodeId to_x = convolution_input_gradient(b, g, w, each.attr, b.shape(x));
    const NodeId to_w = convolution_weight_gradient(b, g, x, each.attr, b.shape(w));
    const NodeId to_bias = convolution_bias_gradient(b, g);
    ASSERT_TRUE(b.ok()) << b.error()->message;
    EXPECT_EQ(b.shape(to_x), shape_of(each.x));
    EXPECT_EQ(b.shape(to_w), shape_of(each.w));
    const auto graph = b.finish({y, to_x, to_w, to_bias});
    ASSERT_TRUE(graph) << graph.error().message;
    const Tensor gradient = random_tensor(constant_sizes(result), random);
    const Tensor image = random_tensor(each.x, random), weight = random_tensor(each.w, random);
    const auto first = interpret(*graph, std::vector<const Tensor*>{&image, &weight, &gradient});
    ASSERT_TRUE(first) << first.error().message;
    EXPECT_EQ(dot((*first)[0], gradient), dot(image, (*first)[1]));
    // The weight gradient depends on x and g alone, so it must hold for every other weight.
    for (int trial = 0; trial < 3; ++trial) {
      const Tensor other = random_tensor(each.w, random), shifted = random_tensor(each.x, random);
      const auto of_w = interpret(*graph, std::vector<const Tensor*>{&image, &other, &gradient});
      const auto of_x = interpret(*graph, std::vector<const Tensor*>{&shifted, &weight, &gradient});
      EXPECT_EQ(dot((*of_w)[0], gradient), dot(other, (*first)[2]));
      EXPECT_EQ(dot((*of_x)[0], gradient), dot(shifted, (*first)[1]));
    }
    double total = 0, summed = 0;
    for (int64_t i = 0; i < gradient.numel(); ++i) total += gradient.get(i);
    for (int64_t i = 0; i < (*first)[3].numel(); ++i) summed += (*first)[3].get(i);
    EXPECT_EQ(total, summed);
    EXPECT_EQ((*first)[3].numel(), each.w[0]);
  }
}

TEST(TransposedConvolution, SpreadsEachElementOverItsWindow) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {1, 1, 3}), w = b.input(DType::kF32, {1, 1, 3});
  const NodeId y = transposed_convolution(b, x, w, {{2}, {1}, {1}, {1}, 1}, {1});
  const auto graph = b.finish({y});
  ASSERT_TRUE(graph) << graph.error().message;
  Tensor image(DType::kF32, {1, 1, 3}), weight(DType::kF32, {1, 1, 3});
  for (int i = 0; i < 3; ++i) {
    image.set(i, i + 1);
    weight.set(i, i == 0 ? 10 : i == 1 ? 100 : 1000);
  }
  const auto result = interpret(*graph, std::vector<const Tensor*>{&image, &weight});
  ASSERT_TRUE(result);
  // Full: 10 100 1020 200 2030 300 3000, less one at the front; the one at the end is the output
  // padding's.
  const std::vector<double> expected = {100, 1020, 200, 2030, 300, 3000};
  ASSERT_EQ((*result)[0].numel(), 6);
  for (int i = 0; i < 6; ++i) EXPECT_EQ((*result)[0].get(i), expected[static_cast<size_t>(i)]);
}

}  // namespace
}  // namespace kiln
