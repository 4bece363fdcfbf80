// How convolutions and pooling fall into kernels.
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/plan.h"
#include "compiler_core/plan/rewrites/graph_rewrites.h"
#include "compiler_core/plan/rewrites/kernel_rewrites.h"
#include "tests/compiler_core/passes/random_graph.h"
#include "tests/compiler_core/plan/run_plan.h"

namespace kiln {
namespace {

using testing::families;

constexpr DType kF32 = DType::kF32;

// The families of the plan, which is checked to compute what the graph does.
std::string families_of(GraphBuilder& b, std::vector<NodeId> outputs) {
  const auto graph = b.finish(std::move(outputs));
  if (!graph) return graph.error().message;
  const auto form = normalise(*graph);
  if (!form) return form.error().message;
  const auto made = plan(form->graph);
  if (!made) return made.error().message;
  const auto inputs = testing::random_inputs(form->graph, 1);
  const auto expected = testing::evaluate(form->graph, testing::in_order(inputs));
  const auto actual = testing::run_plan(*made, testing::in_order(inputs));
  for (size_t i = 0; i < std::min(expected.size(), actual.size()); ++i)
    testing::expect_equal(expected[i], actual[i], 0.02);
  return families(*made);
}

ConvolutionAttr padded(int64_t stride, int64_t zeros, int64_t groups = 1) {
  return {{stride, stride}, {1, 1}, {zeros, zeros}, {zeros, zeros}, groups};
}

NodeId per_channel(GraphBuilder& b, NodeId x, const Shape& shape) {
  const int channels = 1;
  return b.broadcast_in(x, shape, std::span(&channels, 1));
}
NodeId batch_norm(GraphBuilder& b, NodeId x) {
  const Shape shape = b.shape(x);
  const auto input = [&] { return b.input(kF32, {shape[1]}); };
  const NodeId variance = b.unary(Op::kAbs, input());
  const NodeId rstd = b.unary(
      Op::kRsqrt, b.binary(Op::kAdd, variance, b.broadcast(b.constant(kF32, 1e-5), {shape[1]})));
  x = b.binary(Op::kSub, x, per_channel(b, input(), shape));
  x = b.binary(Op::kMul, x, per_channel(b, rstd, shape));
  x = b.binary(Op::kMul, x, per_channel(b, input(), shape));
  return b.binary(Op::kAdd, x, per_channel(b, input(), shape));
}
NodeId relu(GraphBuilder& b, NodeId x) {
  return b.binary(Op::kMax, x, b.broadcast(b.constant(kF32, 0), Shape(b.shape(x))));
}

// 3x3 windows with stride 2 over x, padded with -inf.
NodeId max_pool(GraphBuilder& b, NodeId x) {
  const Shape from = b.shape(x);
  const NodeId p = b.pad(x, {0, 0, 1, 1}, {0, 0, 1, 1},
                         constant_bits(b.dtype(x), -std::numeric_limits<double>::infinity()));
  const int64_t h = from[2].constant() + 2, w = from[3].constant() + 2;
  const NodeId windows = b.view(p, {from[0], from[1], (h - 3) / 2 + 1, (w - 3) / 2 + 1, 3, 3},
                                {from[1] * Dim(h * w), Dim(h * w), Dim(2 * w), 2, Dim(w), 1}, 0);
  return b.reduce(Op::kReduceMax, windows, {4, 5});
}

TEST(ConvolutionPlan, BatchNormAndActivationEndInTheConvolutionsKernel) {
  GraphBuilder b;
  const NodeId y =
      b.convolution(b.input(kF32, {2, 3, 9, 9}), b.input(kF32, {8, 3, 3, 3}), padded(1, 1));
  EXPECT_EQ(families_of(b, {relu(b, batch_norm(b, y))}), "convolution");
}

TEST(ConvolutionPlan, AResidualBlockIsOneKernelAConvolution) {
  GraphBuilder b;
  const NodeId x = b.input(kF32, {2, 4, 6, 7});
  NodeId y = relu(b, batch_norm(b, b.convolution(x, b.input(kF32, {4, 4, 3, 3}), padded(1, 1))));
  y = batch_norm(b, b.convolution(y, b.input(kF32, {4, 4, 3, 3}), padded(1, 1)));
  EXPECT_EQ(families_of(b, {relu(b, b.binary(Op::kAdd, y, x))}), "convolution convolution");
}

TEST(ConvolutionPlan, OneByOneIsAMatmulWithItsEpilogue) {
  for (const int64_t groups : {1, 2})
    for (const int64_t images : {1, 3}) {
      GraphBuilder b;
      const NodeId y = b.convolution(b.input(kF32, {images, 4, 5, 6}),
                                     b.input(kF32, {6, 4 / groups, 1, 1}), padded(1, 0, groups));
      EXPECT_EQ(families_of(b, {relu(b, batch_norm(b, y))}), "matmul") << groups << images;
    }
  GraphBuilder strided;
  const NodeId y = strided.convolution(strided.input(kF32, {2, 4, 5, 6}),
                                       strided.input(kF32, {6, 4, 1, 1}), padded(2, 0));
  EXPECT_EQ(families_of(strided, {y}), "convolution");
}

TEST(ConvolutionPlan, HalvesAreRoundedInTheConvolutionsKernel) {
  GraphBuilder b;
  const NodeId y = b.convolution(b.input(DType::kBF16, {1, 4, 6, 6}),
                                 b.input(DType::kBF16, {4, 4, 3, 3}), padded(1, 1));
  const NodeId rounded = b.cast(y, DType::kBF16);
  EXPECT_EQ(families_of(b, {b.cast(relu(b, b.cast(rounded, kF32)), DType::kBF16)}), "convolution");
}

TEST(ConvolutionPlan, PoolingIsPointwiseAndFusesWithArithmetic) {
  GraphBuilder b;
  const NodeId x = b.input(kF32, {2, 3, 9, 10});
  EXPECT_EQ(families_of(b, {relu(b, max_pool(b, x))}), "pointwise");
  GraphBuilder c;
  const NodeId y =
      c.convolution(c.input(kF32, {1, 3, 9, 9}), c.input(kF32, {4, 3, 3, 3}), padded(1, 1));
  EXPECT_EQ(families_of(c, {max_pool(c, relu(c, batch_norm(c, y)))}), "convolution pointwise");
}

TEST(ConvolutionPlan, AGlobalAverageIsARowReduction) {
  GraphBuilder b;
  const NodeId x = b.input(kF32, {2, 5, 7, 7});
  EXPECT_EQ(families_of(b, {b.reduce(Op::kReduceSum, x, {2, 3})}), "row_reduction");
}

int reduces(const Graph& graph) {
  return static_cast<int>(
      std::count_if(graph.nodes().begin(), graph.nodes().end(),
                    [](const Node& node) { return traits(node.op).kind == OpKind::kReduce; }));
}
int reduces_left(GraphBuilder& b, NodeId output) {
  const auto graph = b.finish({output});
  EXPECT_TRUE(graph) << graph.error().message;
  const auto unrolled = unroll_windows(*graph);
  EXPECT_TRUE(unrolled) << unrolled.error().message;
  return reduces(*unrolled);
}

TEST(UnrollWindows, LeavesContiguousReductionsAndLargeWindowsAlone) {
  GraphBuilder rows;
  EXPECT_EQ(reduces_left(rows, rows.reduce(Op::kReduceSum, rows.input(kF32, {40, 4}), {1})), 1);
  GraphBuilder columns;
  EXPECT_EQ(
      reduces_left(columns, columns.reduce(Op::kReduceMax, columns.input(kF32, {4, 40}), {0})), 1);
  GraphBuilder transposed;
  const NodeId t = transposed.permute(transposed.input(kF32, {4, 40}), {1, 0});
  EXPECT_EQ(reduces_left(transposed, transposed.reduce(Op::kReduceMax, t, {1})), 1);
  GraphBuilder large;  // windows of 65
  const NodeId w = large.view(large.input(kF32, {100}), {36, 65}, {1, 1}, 0);
  EXPECT_EQ(reduces_left(large, large.reduce(Op::kReduceMax, w, {1})), 1);
}

// A mean of 3x3 of maxima of 4x4 would read 144 elements at each position.
TEST(UnrollWindows, CountsTheWindowsBelowAWindow) {
  for (const int64_t outer : {2, 3}) {
    GraphBuilder b;
    const auto windows = [&b](NodeId x, int64_t size) {
      const int64_t n = b.shape(x)[0].constant(), m = n / size;
      return b.view(x, {m, m, size, size}, {size * n, size, n, 1}, 0);
    };
    const NodeId maxima = b.reduce(Op::kReduceMax, windows(b.input(kF32, {24, 24}), 4), {2, 3});
    EXPECT_EQ(reduces_left(b, b.reduce(Op::kReduceSum, windows(maxima, outer), {2, 3})),
              outer == 2 ? 0 : 1);
  }
}

TEST(UnrollWindows, TakesOverlappingAndInterleavedWindowsWithArithmeticOnTop) {
  GraphBuilder sliding;
  NodeId w = sliding.view(sliding.input(kF32, {100}), {98, 3}, {1, 1}, 0);
  w = sliding.binary(Op::kMul, w, w);
  EXPECT_EQ(reduces_left(sliding, sliding.reduce(Op::kReduceSum, w, {1})), 0);
  GraphBuilder blocks;  // 2x2 blocks of 8x6
  const NodeId v = blocks.view(blocks.input(kF32, {8, 6}), {4, 3, 2, 2}, {12, 2, 6, 1}, 0);
  EXPECT_EQ(reduces_left(blocks, blocks.reduce(Op::kReduceSum, v, {2, 3})), 0);
}

TEST(UnrollWindows, ALargePaddedWindowStillPlans) {
  GraphBuilder b;
  const NodeId p = b.pad(b.input(kF32, {3, 100}), {0, 40}, {0, 40}, constant_bits(kF32, 0));
  const NodeId w = b.view(p, {3, 100, 81}, {180, 1, 1}, 0);
  EXPECT_EQ(families_of(b, {b.reduce(Op::kReduceSum, w, {2})}), "pointwise row_reduction");
}

TEST(PointwiseConvolutions, LeavesOthersAsTheyAre) {
  for (const ConvolutionAttr& attr : {padded(2, 0), padded(1, 1)}) {
    GraphBuilder b;
    const NodeId y = b.convolution(b.input(kF32, {2, 4, 5, 6}), b.input(kF32, {6, 4, 1, 1}), attr);
    const auto graph = b.finish({y});
    EXPECT_EQ(*pointwise_convolutions(*graph), *graph);
  }
}

// The patches of a vision transformer: a matmul, which stores them as tokens.
TEST(ConvolutionPlan, PatchesAreRowsOfAMatmul) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kBF16, {2, 3, 32, 48});
  const NodeId w = b.input(DType::kBF16, {8, 3, 16, 16});
  const NodeId y = b.cast(b.convolution(x, w, padded(16, 0)), DType::kBF16);
  EXPECT_EQ(families_of(b, {b.permute(b.reshape(y, {2, 8, 6}), {0, 2, 1})}), "pointwise matmul");
}

// A whole number of patches, none of whose edges is padded or left out, and not of many channels.
TEST(ConvolutionPlan, OtherWindowsStayConvolutions) {
  for (const auto& [x, w, zeros] :
       {std::tuple<Shape, Shape, int64_t>{{1, 3, 33, 32}, {8, 3, 16, 16}, 0},
        {{1, 3, 30, 30}, {8, 3, 16, 16}, 1},
        {{1, 64, 8, 8}, {8, 64, 4, 4}, 0},
        {{1, 3, 8, 8}, {8, 3, 4, 4}, 0}}) {
    GraphBuilder b;
    const int64_t stride = w[2].constant();
    const NodeId y =
        b.convolution(b.input(kF32, Shape(x)), b.input(kF32, Shape(w)), padded(stride, zeros));
    EXPECT_EQ(families_of(b, {y}), "convolution");
  }
}

}  // namespace
}  // namespace kiln
