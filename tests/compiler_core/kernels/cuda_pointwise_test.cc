// Pointwise kernels for CUDA, run on the fake GPU under the schedules of their space.
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler_core/ir/interpreter.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"
#include "tests/compiler_core/kernels/kernel_harness.h"
#include "tests/compiler_core/kernels/random_graph.h"

namespace kiln {
namespace {

using testing::check_schedule;
using testing::check_space;
using testing::kHopper;
using testing::random_inputs;
using testing::RandomGraph;

std::string check_cuda_pointwise(const Graph& graph, int limit = 100) {
  std::mt19937 random(7);
  const std::vector<Tensor> inputs = random_inputs(graph, random);
  const std::string wrong = check_space({graph, Family::kPointwise, {}}, kHopper, inputs, limit);
  return wrong.empty() ? "" : wrong + "\n" + print(graph);
}

// Under these schedules, whatever the space would list for so small a graph.
std::string check_cuda_pointwise_with(const Graph& graph,
                                      std::initializer_list<const char*> schedules) {
  std::mt19937 random(7);
  const std::vector<Tensor> inputs = random_inputs(graph, random);
  for (const char* schedule : schedules) {
    const std::string wrong = check_schedule({graph, Family::kPointwise, {}},
                                             *Schedule::parse(schedule), kHopper, inputs);
    if (!wrong.empty()) return wrong + "\n" + print(graph);
  }
  return "";
}

TEST(CudaPointwise, SumOfSineAndCosineUnderEverySchedule) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {50, 61}), y = b.input(DType::kF32, {50, 61});
  const NodeId sum = b.binary(Op::kAdd, b.unary(Op::kSin, x), b.unary(Op::kCos, y));
  EXPECT_EQ(check_cuda_pointwise(*b.finish({sum})), "");
}

TEST(CudaPointwise, BroadcastsAlongBothAxesUnderEveryMap) {
  for (const Shape& space : {Shape{37, 64}, Shape{64, 61}, Shape{3, 5, 48}}) {
    GraphBuilder b;
    const size_t rank = space.size();
    const int64_t columns = space.back().constant(), rows = space[rank - 2].constant();
    std::vector<Dim> along(rank, Dim(0)), down(rank, Dim(0));
    along[rank - 1] = Dim(1);
    down[rank - 2] = Dim(1);
    const NodeId x = b.input(DType::kBF16, space);
    const NodeId bias = b.view(b.input(DType::kF32, {Dim(columns)}), space, along, Dim(0));
    const NodeId scale = b.view(b.input(DType::kF32, {Dim(rows)}), space, down, Dim(0));
    const NodeId y = b.binary(Op::kAdd, b.binary(Op::kMul, b.cast(x, DType::kF32), scale), bias);
    const Graph graph = *b.finish({b.cast(y, DType::kBF16), y});
    EXPECT_EQ(check_cuda_pointwise_with(
                  graph, {"cuda.pointwise lanes=8 threads=32 unroll=2 map=0",
                          "cuda.pointwise lanes=4 threads=64 unroll=4 map=0",
                          "cuda.pointwise lanes=8 threads=32 unroll=4 map=1",
                          "cuda.pointwise lanes=1 threads=128 unroll=8 map=0",
                          "cuda.pointwise lanes=2 threads=32 unroll=1 map=0",
                          "cuda.pointwise lanes=16 threads=32 unroll=2 map=2 stream=1",
                          "cuda.pointwise lanes=1 threads=32 unroll=4 map=2"}),
              "");
  }
}

// The transpose of all axes, as it is and beside what lies as the space does.
Graph transpose(DType dtype, const Shape& shape) {
  GraphBuilder b;
  std::vector<int> order(shape.size());
  for (size_t k = 0; k < order.size(); ++k) order[k] = static_cast<int>(order.size() - 1 - k);
  const DType wide = is_half(dtype) ? DType::kF32 : dtype;
  const NodeId turned = b.permute(b.input(dtype, shape), order);
  const NodeId other = b.input(wide, Shape(shape.rbegin(), shape.rend()));
  return *b.finish({turned, b.binary(Op::kMax, b.cast(turned, wide), other)});
}

// A residual chain reads many values at the same rearranged place: coordinates of its own for each
// were thousands of divisions, which compiled for minutes.
TEST(CudaPointwise, CoordinatesThatManyOperandsShareAreComputedOnce) {
  const auto divisions = [](int operands) -> int64_t {
    GraphBuilder b;
    NodeId sum = 0;
    for (int i = 0; i < operands; ++i) {
      const NodeId x = b.unary(Op::kNeg, b.input(DType::kF32, {6, 5, 7}));
      const NodeId flat = b.view(x, {210}, {Dim(1)}, Dim(0));
      sum = i == 0 ? flat : b.binary(Op::kAdd, sum, flat);
    }
    const Graph graph = *b.finish({sum});
    EXPECT_EQ(check_cuda_pointwise(graph, 2), "");
    const auto source =
        lower({graph, Family::kPointwise, {}},
              *Schedule::parse("cuda.pointwise lanes=4 threads=32 unroll=1 map=0"), kHopper);
    if (!source) return ADD_FAILURE() << source.error().message, 0;
    const std::string& text = std::get<Source>(*source).text;
    const std::string kernel = text.substr(text.find("// ---- The kernel."));
    return std::ranges::count(kernel, '%');
  };
  const int64_t once = divisions(1);
  EXPECT_GT(once, 0);
  EXPECT_EQ(divisions(9), once);
}

TEST(CudaPointwise, TransposesAreTiled) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kI64, DType::kU8})
    for (const Shape& shape : {Shape{70, 3, 133}, Shape{72, 2, 136}}) {
      const Graph graph = transpose(dtype, shape);
      EXPECT_EQ(
          check_cuda_pointwise_with(graph, {"cuda.pointwise lanes=1 threads=256 tile=32",
                                            "cuda.pointwise lanes=4 threads=64 tile=32",
                                            "cuda.pointwise lanes=2 threads=512 tile=64 stream=1"}),
          "");
      EXPECT_EQ(check_cuda_pointwise(graph, 1), "");
    }
}

// Whether a half stands in the middle of a computation: CUDA kernels keep the precision of the f32
// that it was computed in (printing/expression.h), so they are nearer to what is meant than the interpreter.
bool rounds_on_the_way(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) {
    return std::any_of(node.operands.begin(), node.operands.end(), [&](NodeId id) {
      return graph.node(id).op == Op::kCast && is_half(graph.node(id).dtype);
    });
  });
}

// x * scale.to(bf16), where the scale lies in memory as f32: the rounding is the program's, not one of a
// computation in halves, and the product of two halves is exact in f32, so that results agree to the bit.
TEST(CudaPointwise, WhatLiesInMemoryAsF32IsRoundedWhereTheProgramSays) {
  GraphBuilder b;
  const Shape shape{33, 48};
  const NodeId x = b.input(DType::kBF16, shape);
  const NodeId scale = b.cast(b.input(DType::kF32, {Dim(48)}), DType::kBF16);
  const NodeId row = b.view(scale, shape, {Dim(0), Dim(1)}, Dim(0));
  const NodeId product = b.binary(Op::kMul, b.cast(x, DType::kF32), b.cast(row, DType::kF32));
  const Graph graph = *b.finish({b.cast(product, DType::kBF16)});
  std::mt19937 random(7);
  const std::vector<Tensor> inputs = random_inputs(graph, random);
  const Workload workload{graph, Family::kPointwise, {}};
  const auto source = lower_to_source(
      workload, *Schedule::parse("cuda.pointwise lanes=8 threads=32 unroll=2 map=0"), kHopper);
  ASSERT_TRUE(source) << source.error().message;
  const auto outputs = testing::run_source(*source, kHopper, inputs);
  ASSERT_TRUE(outputs) << outputs.error().message;
  const std::vector<const Tensor*> given{&inputs[0], &inputs[1]};
  EXPECT_TRUE(std::ranges::equal((*outputs)[0].bytes(), (*interpret(graph, given))[0].bytes()));
}

TEST(CudaPointwise, RandomGraphsAgreeWithTheInterpreter) {
  const Shape shapes[] = {{},       {1},      {7},        {16},       {333},         {3, 5},
                          {17, 33}, {64, 48}, {2, 3, 24}, {5, 1, 19}, {4, 3, 2, 17}, {1030}};
  uint32_t seed = 1;
  for (const Shape& shape : shapes)
    for (int i = 0; i < 4; ++i, ++seed) {
      RandomGraph random(seed);
      const Graph graph = random.pointwise(shape, static_cast<int>(random.pick(1, 8)), i % 2 == 1);
      if (rounds_on_the_way(graph)) continue;
      EXPECT_EQ(check_cuda_pointwise(graph, 1), "") << "seed " << seed;
    }
}

}  // namespace
}  // namespace kiln
