#include "compiler_core/kernels/convolution/cuda_convolution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "compiler_core/ir/builder.h"
#include "compiler_core/plan/workload.h"
#include "tests/compiler_core/kernels/convolution_workloads.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::check_schedule;
using testing::check_space;
using testing::check_with_random_inputs;
using testing::kHopper;
using testing::padded;
using testing::plain;
using testing::planned;
using testing::random_inputs;
using testing::run_source;

Schedule as_convolution(const CudaMatmulSchedule& schedule) {
  return {"cuda.convolution", to_schedule(schedule).decisions};
}

std::string check_cuda_convolution(const Workload& workload, const CudaMatmulSchedule& schedule) {
  return check_with_random_inputs(workload, as_convolution(schedule), kHopper, 7);
}

TEST(CudaConvolution, AgreesOnTensorCoresWithRestsEverywhere) {
  EXPECT_EQ(check_cuda_convolution(plain(DType::kBF16, {2, 5, 7, 9}, {19, 5, 3, 3}, padded(1, 1)),
                                   {32, 64, 32, 1, 4, 3, 1, 8}),
            "");
  EXPECT_EQ(check_cuda_convolution(plain(DType::kF32, {1, 3, 13, 11}, {17, 3, 7, 7}, padded(2, 3)),
                                   {32, 64, 16, 1, 4, 3, 1, 8}),
            "");
  EXPECT_EQ(check_cuda_convolution(plain(DType::kF16, {1, 8, 6, 8}, {16, 8, 3, 3}, padded(1, 1)),
                                   {16, 64, 32, 1, 4, 3, 2, 8}),
            "");
}

// As CudaMatmul's; the depth of 180 ends inside a tile and inside an instruction's depth.
TEST(CudaConvolution, SumsOfF32AreNotTooSmallOnAverage) {
  constexpr int64_t kIn = 20, kOut = 64, kSize = 14, kHeld = kSize + 2;
  const Workload workload =
      plain(DType::kF32, {1, kIn, kHeld, kHeld}, {kOut, kIn, 3, 3}, padded(1, 0));
  std::mt19937 random(9);
  std::normal_distribution<double> normal;
  std::vector<Tensor> inputs = random_inputs(workload.graph, random);
  for (Tensor& input : inputs)
    for (int64_t i = 0; i < input.numel(); ++i) input.set(i, normal(random));
  const auto source = lower_to_source(
      workload, as_convolution(CudaMatmulSchedule{32, 64, 32, 1, 4, 3, 1, 8}), kHopper);
  ASSERT_TRUE(source) << source.error().message;
  const auto outputs = run_source(*source, kHopper, inputs);
  ASSERT_TRUE(outputs) << outputs.error().message;
  ASSERT_EQ((*outputs)[0].numel(), kOut * kSize * kSize);
  double along = 0, squares = 0;
  for (int64_t i = 0; i < kOut * kSize * kSize; ++i) {
    const int64_t channel = i / (kSize * kSize), row = i / kSize % kSize, column = i % kSize;
    double exact = 0;
    for (int64_t k = 0; k < kIn * 9; ++k)
      exact += inputs[1].get(channel * kIn * 9 + k) *
               inputs[0].get((k / 9 * kHeld + row + k / 3 % 3) * kHeld + column + k % 3);
    along += ((*outputs)[0].get(i) - exact) * exact;
    squares += exact * exact;
  }
  EXPECT_LT(std::abs(along / squares), 1.5e-8);
}

TEST(CudaConvolution, AgreesUnderTheSchedulesOfTheSpace) {
  const Workload workload = plain(DType::kF32, {2, 6, 9, 10}, {24, 6, 3, 3}, padded(1, 1));
  std::mt19937 random(8);
  EXPECT_EQ(check_space(workload, kHopper, random_inputs(workload.graph, random), 3), "");
}

TEST(CudaConvolution, AgreesForGroupsDilationAndOtherRanks) {
  EXPECT_EQ(check_cuda_convolution(plain(DType::kBF16, {2, 12, 6, 7}, {18, 4, 3, 2},
                                         {{2, 1}, {1, 2}, {1, 0}, {2, 1}, 3}),
                                   {16, 64, 32, 1, 4, 3, 1, 8}),
            "");
  EXPECT_EQ(
      check_cuda_convolution(plain(DType::kF32, {2, 6, 30}, {10, 6, 5}, {{1}, {2}, {4}, {4}, 1}),
                             {16, 64, 16, 1, 4, 3, 1, 8}),
      "");
  EXPECT_EQ(check_cuda_convolution(plain(DType::kF32, {1, 3, 4, 5, 6}, {5, 3, 2, 2, 3},
                                         {{1, 2, 1}, {1, 1, 1}, {1, 0, 1}, {1, 1, 1}, 1}),
                                   {16, 64, 16, 1, 4, 3, 1, 8}),
            "");
}

TEST(CudaConvolution, AgreesWithoutTensorCores) {
  for (const DType dtype : {DType::kF64, DType::kI32, DType::kI64, DType::kI8})
    EXPECT_EQ(check_cuda_convolution(plain(dtype, {1, 3, 6, 7}, {5, 3, 3, 3}, padded(1, 1)),
                                     {16, 64, 16, 2, 2, 2, 1, 8}),
              "")
        << to_string(dtype);
}

TEST(CudaConvolution, ReadsAFlippedTransposedWeight) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    GraphBuilder b;
    const NodeId x = b.permute(b.input(dtype, {1, 6, 7, 6}), {0, 3, 1, 2});
    NodeId w = b.permute(b.input(dtype, {6, 8, 3, 3}), {1, 0, 2, 3});
    w = b.slice(b.slice(w, 2, 2, 3, -1), 3, 2, 3, -1);
    EXPECT_EQ(check_cuda_convolution(planned(b, b.convolution(x, w, padded(1, 2))),
                                     {16, 64, 32, 1, 4, 3, 1, 8}),
              "");
  }
}

// conv -> scale a channel -> residual -> relu, with the sums of one block or of several.
TEST(CudaConvolution, FusesScaleResidualAndActivation) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int splits : {1, 2}) {
      GraphBuilder b;
      const Shape shape = {2, 10, 5, 6};
      const int channel = 1;
      const auto wide = [&](NodeId id) { return b.cast(id, DType::kF32); };
      NodeId y =
          b.convolution(b.input(dtype, {2, 6, 5, 6}), b.input(dtype, {10, 6, 3, 3}), padded(1, 1));
      y = b.binary(Op::kMul, y,
                   b.broadcast_in(wide(b.input(dtype, {10})), shape, std::span(&channel, 1)));
      y = b.binary(Op::kAdd, y, wide(b.input(dtype, shape)));
      y = b.binary(Op::kMax, y, b.broadcast(b.constant(DType::kF32, 0), shape));
      EXPECT_EQ(
          check_cuda_convolution(planned(b, b.cast(y, dtype)), {16, 64, 32, 1, 4, 3, splits, 8}),
          "")
          << to_string(dtype) << splits;
    }
}

TEST(CudaConvolution, KeepsNanAndInfinity) {
  const Workload workload = plain(DType::kF32, {1, 1, 4, 20}, {1, 1, 3, 3}, padded(1, 1));
  std::vector<Tensor> inputs;
  for (NodeId id : workload.graph.inputs())
    inputs.emplace_back(DType::kF32, constant_sizes(workload.graph.node(id).shape));
  for (Tensor& input : inputs) {
    const bool weight = input.numel() == 9;
    for (int64_t i = 0; i < input.numel() && weight; ++i) input.set(i, 1);
    if (weight) continue;
    input.set(0, NAN);
    input.set(30, INFINITY);
    input.set(39, -INFINITY);
  }
  EXPECT_EQ(check_schedule(workload, as_convolution({16, 64, 16, 1, 4, 3, 1, 8}), kHopper, inputs),
            "");
}

TEST(CudaConvolution, RefusesSchedulesOfOthers) {
  const Schedule matmul = to_schedule(CudaMatmulSchedule{});
  EXPECT_FALSE(decisions_of<CudaConvolutionSchedule>(matmul));
  EXPECT_TRUE(decisions_of<CudaConvolutionSchedule>(as_convolution({})));
}

}  // namespace
}  // namespace kiln
