#include "compiler_core/kernels/convolution/cpu_convolution.h"

#include <gtest/gtest.h>

#include <cmath>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/plan/workload.h"
#include "tests/compiler_core/kernels/convolution_workloads.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::check_schedule;
using testing::check_space;
using testing::padded;
using testing::planned;
using testing::random_inputs;
using testing::targets;

Workload convolution_workload(GraphBuilder& b, NodeId output) {
  auto graph = b.finish({output});
  EXPECT_TRUE(graph) << graph.error().message;
  const auto family = classify(*graph);
  EXPECT_TRUE(family) << family.error().message;
  EXPECT_EQ(*family, Family::kConvolution);
  return {*graph, Family::kConvolution, {}};
}

std::vector<Target> host() {
  return {targets()[0]};
}

std::string check_convolution(const Workload& workload, int limit,
                              std::vector<Target> on = host()) {
  std::mt19937 random(11);
  const std::vector<Tensor> inputs = random_inputs(workload.graph, random);
  for (const Target& target : on) {
    const std::string wrong = check_space(workload, target, inputs, limit);
    if (!wrong.empty()) return wrong + "\n" + print(workload.graph);
  }
  return "";
}

std::string check_convolution_on_host(const Workload& workload,
                                      const CpuConvolutionSchedule& schedule) {
  std::mt19937 random(12);
  const std::vector<Tensor> inputs = random_inputs(workload.graph, random);
  return check_schedule(workload, to_schedule(schedule), targets()[0], inputs);
}

int host_lanes() {
  return targets()[0].isa == "x86-64-v4" ? 16 : 8;
}

Workload as_written(DType dtype, Shape x, Shape w, ConvolutionAttr attr) {
  GraphBuilder b;
  const NodeId image = b.input(dtype, std::move(x));
  const NodeId y = b.convolution(image, b.input(dtype, std::move(w)), std::move(attr));
  return convolution_workload(b, is_half(dtype) ? b.cast(y, dtype) : y);
}

TEST(Convolution, AgreesUnderEveryScheduleOfTheSpace) {
  EXPECT_EQ(check_convolution(as_written(DType::kF32, {2, 5, 13, 21}, {19, 5, 3, 3}, padded(1, 1)),
                              100, {targets()[0]}),
            "");
  EXPECT_EQ(
      check_convolution(as_written(DType::kF32, {2, 5, 13, 21}, {19, 5, 3, 3}, padded(1, 1)), 3),
      "");
}

TEST(Convolution, AgreesWithStridesDilationAndUnevenPadding) {
  EXPECT_EQ(
      check_convolution(as_written(DType::kF32, {1, 3, 31, 30}, {17, 3, 7, 7}, padded(2, 3)), 4),
      "");
  EXPECT_EQ(check_convolution(as_written(DType::kF32, {2, 4, 12, 19}, {6, 4, 3, 2},
                                         {{2, 1}, {2, 3}, {0, 4}, {3, 1}, 1}),
                              4),
            "");
  // Padding that no window reaches, and windows that lie in padding altogether.
  EXPECT_EQ(check_convolution(as_written(DType::kF32, {1, 2, 4, 4}, {3, 2, 2, 2},
                                         {{5, 3}, {1, 1}, {4, 3}, {1, 5}, 1}),
                              4),
            "");
}

TEST(Convolution, AgreesForGroupsAndDepthwise) {
  EXPECT_EQ(
      check_convolution(as_written(DType::kF32, {2, 12, 9, 20}, {18, 4, 3, 3}, padded(1, 1, 3)), 4),
      "");
  EXPECT_EQ(
      check_convolution(as_written(DType::kF32, {2, 7, 9, 37}, {7, 1, 3, 3}, padded(1, 1, 7)), 6),
      "");
  EXPECT_EQ(
      check_convolution(as_written(DType::kF32, {1, 6, 10, 19}, {12, 1, 5, 3}, padded(2, 2, 6)), 4),
      "");
}

TEST(Convolution, AgreesForOneAndThreeSpatialAxes) {
  EXPECT_EQ(check_convolution(
                as_written(DType::kF32, {2, 6, 70}, {10, 6, 5}, {{1}, {2}, {4}, {4}, 1}), 3),
            "");
  EXPECT_EQ(check_convolution(as_written(DType::kF32, {1, 3, 5, 6, 18}, {9, 3, 3, 2, 3},
                                         {{1, 2, 1}, {1, 1, 1}, {1, 0, 1}, {1, 1, 1}, 1}),
                              3),
            "");
}

TEST(Convolution, AgreesForEveryDtype) {
  for (const DType dtype :
       {DType::kBF16, DType::kF16, DType::kF64, DType::kI32, DType::kI64, DType::kI8, DType::kU8})
    EXPECT_EQ(check_convolution(as_written(dtype, {1, 3, 8, 11}, {5, 3, 3, 3}, padded(1, 1)), 2,
                                {targets()[0]}),
              "")
        << to_string(dtype);
}

TEST(Convolution, AgreesAtDegenerateSizes) {
  EXPECT_EQ(check_convolution(as_written(DType::kF32, {1, 1, 1, 1}, {1, 1, 1, 1}, padded(1, 0)), 2),
            "");
  EXPECT_EQ(check_convolution(as_written(DType::kF32, {3, 2, 5, 5}, {4, 2, 5, 5}, padded(1, 0)), 2),
            "");
  EXPECT_EQ(check_convolution(as_written(DType::kF32, {1, 9, 6, 6}, {8, 9, 1, 1}, padded(2, 0)), 3),
            "");
}

// Places 0 1 2, 5 6 7 and the last one repeated end where eight neighbours would.
TEST(Convolution, AgreesWhereABrokenRowEndsAsANeighbourWould) {
  const Workload small = as_written(DType::kF32, {2, 3, 2, 3}, {5, 3, 3, 3}, padded(1, 1));
  for (const XFrom x_from : {XFrom::kField, XFrom::kBlock})
    EXPECT_EQ(check_convolution_on_host(small, {8, false, 4, 24, 27, 12, 120, true, x_from}), "");
}

// Every way the kernels can be cut, on sizes that leave a rest everywhere.
TEST(Convolution, AgreesHoweverItIsBlocked) {
  const int lanes = host_lanes();
  const Workload inside =
      as_written(DType::kF32, {2, 5, 11, 2 * lanes + 9}, {12, 5, 3, 3}, padded(1, 0));
  for (const bool slide : {true, false})
    for (const XFrom x_from : {XFrom::kInPlace, XFrom::kField, XFrom::kBlock})
      for (const bool a_packed : {true, false}) {
        CpuConvolutionSchedule schedule{lanes, slide, 4, 2 * lanes, 16, 8, 64, a_packed, x_from};
        EXPECT_EQ(check_convolution_on_host(inside, schedule), "")
            << to_schedule(schedule).to_string();
      }
  const Workload strided = as_written(DType::kF32, {1, 5, 11, 41}, {13, 5, 3, 3}, padded(2, 1));
  for (const bool slide : {true, false})
    EXPECT_EQ(check_convolution_on_host(
                  strided, {lanes, slide, 5, lanes, 1000, 10, 40, true, XFrom::kBlock}),
              "");
}

// As Matmul.ALongSumIsAsExactAsAShortOne; one sum of 1152 products would be off by 6e-7 here.
TEST(Convolution, ALongSumIsAsExactAsAShortOne) {
  const int lanes = host_lanes();
  constexpr int64_t channels = 128, rows = 8, height = 2, window = 3;
  const int64_t width = 2 * lanes, line = width + window - 1, plane = (height + window - 1) * line;
  const Workload workload = as_written(DType::kF32, {1, channels, height + window - 1, line},
                                       {rows, channels, window, window}, padded(1, 0));
  std::mt19937 random(13);
  const std::vector<Tensor> inputs = random_inputs(workload.graph, random);
  for (const bool slide : {true, false}) {
    const CpuConvolutionSchedule schedule{lanes, slide, 4,    2 * lanes,    1152,
                                          8,     64,    true, XFrom::kBlock};
    const auto source = lower_to_source(workload, to_schedule(schedule), targets()[0]);
    ASSERT_TRUE(source) << source.error().message;
    const auto outputs = testing::run_source(*source, targets()[0], inputs);
    ASSERT_TRUE(outputs) << outputs.error().message;
    double errors = 0, squares = 0;
    for (int64_t i = 0; i < rows * height * width; ++i) {
      const int64_t row = i / (height * width), y = i / width % height, x = i % width;
      double sum = 0;
      for (int64_t c = 0; c < channels; ++c)
        for (int64_t at = 0; at < window * window; ++at)
          sum += inputs[0].get(c * plane + (y + at / window) * line + x + at % window) *
                 inputs[1].get((row * channels + c) * window * window + at);
      const double error = (*outputs)[0].get(i) - sum;
      errors += error * error;
      squares += sum * sum;
    }
    EXPECT_LT(std::sqrt(errors / squares), 3.5e-7) << (slide ? "slide" : "panels");
  }
}

TEST(Convolution, ReadsOperandsThroughViews) {
  GraphBuilder b;
  // Channels last in memory, and the weight of a transposed convolution: flipped, channels swapped.
  const NodeId x = b.permute(b.input(DType::kF32, {2, 9, 12, 6}), {0, 3, 1, 2});
  NodeId w = b.permute(b.input(DType::kF32, {6, 8, 3, 3}), {1, 0, 2, 3});
  w = b.slice(b.slice(w, 2, 2, 3, -1), 3, 2, 3, -1);
  EXPECT_EQ(check_convolution(planned(b, b.convolution(x, w, padded(1, 2))), 4), "");
  GraphBuilder c;
  const NodeId halves = c.slice(c.input(DType::kBF16, {2, 9, 8, 20}), 1, 2, 6);
  const NodeId same = c.broadcast(c.input(DType::kBF16, {5, 6, 1, 3}), {5, 6, 3, 3});
  EXPECT_EQ(check_convolution(planned(c, c.convolution(halves, same, padded(1, 0))), 3), "");
}

// conv -> batch norm -> residual -> relu, the residual dense or a slice that no loop over
// positions reads as one axis.
Workload block(DType dtype, bool sliced) {
  GraphBuilder b;
  const Shape shape = {2, 10, 7, 9};
  const int channel = 1;
  const auto wide = [&](NodeId id) { return b.cast(id, DType::kF32); };
  const auto per_channel = [&](NodeId id) {
    return b.broadcast_in(id, shape, std::span(&channel, 1));
  };
  NodeId y =
      b.convolution(b.input(dtype, {2, 6, 7, 9}), b.input(dtype, {10, 3, 3, 3}), padded(1, 1, 2));
  y = b.binary(Op::kSub, y, per_channel(wide(b.input(dtype, {10}))));
  const NodeId variance = b.unary(Op::kAbs, per_channel(wide(b.input(dtype, {10}))));
  const NodeId one = b.broadcast(b.constant(DType::kF32, 1), shape);
  y = b.binary(Op::kMul, y, b.unary(Op::kRsqrt, b.binary(Op::kAdd, variance, one)));
  const NodeId residual = sliced
                              ? b.slice(b.slice(b.input(dtype, {2, 10, 8, 12}), 2, 1, 7), 3, 2, 9)
                              : b.input(dtype, shape);
  y = b.binary(Op::kAdd, y, wide(residual));
  return planned(
      b, b.cast(b.binary(Op::kMax, y, b.broadcast(b.constant(DType::kF32, 0), shape)), dtype));
}

TEST(Convolution, FusesBatchNormResidualAndActivation) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const bool sliced : {false, true})
      EXPECT_EQ(check_convolution(block(dtype, sliced), 1), "") << to_string(dtype) << sliced;
}

TEST(Convolution, KeepsNanAndInfinity) {
  const Workload workload = as_written(DType::kF32, {1, 1, 4, 20}, {2, 1, 3, 3}, padded(1, 1));
  Tensor x(DType::kF32, {1, 1, 4, 20}), w(DType::kF32, {2, 1, 3, 3});
  for (int64_t i = 0; i < w.numel(); ++i) w.set(i, 1);
  x.set(0, NAN);
  x.set(30, INFINITY);
  x.set(39, -INFINITY);
  std::vector<Tensor> inputs;
  inputs.push_back(std::move(x));
  inputs.push_back(std::move(w));
  for (const Schedule& schedule : cpu_convolution_candidates(workload, targets()[0]))
    ASSERT_EQ(check_schedule(workload, schedule, targets()[0], inputs), "");
}

TEST(Convolution, RefusesAScheduleThatDoesNotFit) {
  CpuConvolutionSchedule in_place;
  in_place.x_from = XFrom::kInPlace;
  const Workload zeros = as_written(DType::kF32, {1, 4, 9, 9}, {8, 4, 3, 3}, padded(1, 1));
  EXPECT_EQ(print_cpu_convolution(zeros.graph, in_place).error().code, Code::kInvalidArgument);
  CpuConvolutionSchedule unpacked;
  unpacked.a_packed = false;
  unpacked.mr = 3;
  EXPECT_EQ(print_cpu_convolution(zeros.graph, unpacked).error().code, Code::kInvalidArgument);
}

TEST(Convolution, SpaceIsDeterministicDistinctAndBounded) {
  for (const Target& target : targets())
    for (const int64_t channels : {3, 64, 512}) {
      const Workload workload =
          as_written(DType::kF32, {1, channels, 28, 28}, {128, channels, 3, 3}, padded(1, 1));
      const auto space = cpu_convolution_candidates(workload, target);
      EXPECT_GE(space.size(), 8u);
      EXPECT_LE(space.size(), 16u);
      EXPECT_EQ(space, cpu_convolution_candidates(workload, target));
      for (size_t i = 0; i < space.size(); ++i) {
        EXPECT_EQ(to_schedule(*decisions_of<CpuConvolutionSchedule>(space[i])), space[i]);
        for (size_t j = 0; j < i; ++j) EXPECT_NE(space[i], space[j]);
      }
    }
}

}  // namespace
}  // namespace kiln
