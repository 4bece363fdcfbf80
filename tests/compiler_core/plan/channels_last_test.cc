// Plans whose convolutions' images lie channels last: what they store, and that they compute the same.
#include "compiler_core/plan/channels_last.h"

#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/partition.h"
#include "compiler_core/plan/plan.h"
#include "tests/compiler_core/passes/random_graph.h"
#include "tests/compiler_core/plan/convolution_nets.h"
#include "tests/compiler_core/plan/run_plan.h"

namespace kiln {
namespace {

using testing::bottleneck;
using testing::coarse_inputs;
using testing::families;
using testing::inverted_bottlenecks;
using testing::Net;
using testing::random_net;
using testing::rows_between_windows;

constexpr PartitionRules kChannelsLast{.channels_last = true};

void expect_same(const Graph& graph, const Plan& plan, uint64_t seed) {
  const std::vector<Tensor> inputs = coarse_inputs(graph, seed);
  const auto expected = testing::evaluate(graph, testing::in_order(inputs));
  const auto actual = testing::run_plan(plan, testing::in_order(inputs));
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NO_FATAL_FAILURE(testing::expect_equal(expected[i], actual[i], 0)) << "output " << i;
}

std::string families_of(const Graph& graph, const PartitionRules& rules = kChannelsLast) {
  const auto made = plan(graph, rules);
  if (!made) return made.error().message;
  expect_same(graph, *made, 3);
  return families(*made);
}

// The shapes of what kernels pass to one another.
std::string stored(const Graph& graph) {
  const auto made = plan(graph, kChannelsLast);
  if (!made) return made.error().message;
  std::string text;
  for (const Buffer& buffer : made->buffers)
    if (buffer.kind == Buffer::Kind::kTemporary) text += to_string(buffer.spec.shape);
  return text;
}

TEST(ChannelsLast, ABottleneckTurnsNothing) {
  Net net;
  const Graph graph = bottleneck(net);
  // The two in front bring the stem's image and weights, of three channels, to whole 16 bytes.
  EXPECT_EQ(families_of(graph),
            "pointwise pointwise convolution pointwise matmul convolution matmul matmul matmul "
            "convolution matmul "
            "convolution matmul convolution matmul column_reduction");
  EXPECT_EQ(stored(graph).find("[2,128,"), std::string::npos) << stored(graph);
  EXPECT_EQ(stored(graph).find("[2,32,"), std::string::npos) << stored(graph);
}

// The rows that products of channels give are images as they lie.
TEST(ChannelsLast, WindowsOfOneChannelTurnNothing) {
  Net net;
  const Graph bottlenecks = inverted_bottlenecks(net);
  families_of(bottlenecks);  // computes the same
  for (const char* second : {"[2,16,", "[2,32,", "[2,48,"})
    EXPECT_EQ(stored(bottlenecks).find(std::string(second) + "8"), std::string::npos)
        << stored(bottlenecks);
  Net other;
  const Graph blocks = rows_between_windows(other);
  // The stem's image and weights come to whole 16 bytes first.
  EXPECT_EQ(families_of(blocks),
            "pointwise pointwise convolution convolution row_reduction matmul matmul convolution "
            "row_reduction matmul matmul convolution row_reduction");
}

TEST(ChannelsLast, IsARuleOfItsOwn) {
  Net net;
  const Graph graph = bottleneck(net);
  EXPECT_NE(families_of(graph, {}), families_of(graph));
  PartitionOptions plain;
  const auto parts = partition(graph, plain);
  for (const FusedKernel& kernel : parts->kernels)
    for (NodeId id = 0; id < kernel.workload.graph.size(); ++id)
      EXPECT_EQ(find_channels_last_view(kernel.workload.graph, id), kInvalidNode);
}

// One alone would be turned at both ends, and the last gives its results as the caller has them.
TEST(ChannelsLast, EndsWhereNoConvolutionFollows) {
  Net one;
  const Graph alone = one.done({one.relu(one.convolution(one.input({2, 32, 6, 6}), 32, 3, 1, 1))});
  EXPECT_EQ(families_of(alone), "convolution");
  Net two;
  const NodeId x = two.relu(two.convolution(two.input({2, 32, 6, 6}), 40, 3, 1, 1));
  const Graph graph = two.done({two.relu(two.convolution(x, 48, 3, 1, 1))});
  EXPECT_EQ(families_of(graph), "convolution convolution");
  EXPECT_EQ(stored(graph), "[2,6,6,40]");
}

// Norms over groups of channels read them channel by channel: nothing would be spared.
TEST(ChannelsLast, LeavesNormsOfGroupsAsTheyAre) {
  Net net;
  NodeId x = net.input({2, 32, 6, 6});
  for (int i = 0; i < 3; ++i) {
    const Shape rows = {2, 4, 8 * 36};
    const int axes[] = {0, 1};
    const NodeId y = net.b.cast(net.b.reshape(net.convolution(x, 32, 3, 1, 1), rows), DType::kF32);
    const NodeId sum = net.b.broadcast_in(net.b.reduce(Op::kReduceSum, y, {2}), rows, axes);
    const NodeId centred = net.b.binary(Op::kAdd, y, sum);
    x = net.scaled(net.b.cast(net.b.reshape(centred, {2, 32, 6, 6}), DType::kBF16), 0.0625);
  }
  const Graph graph = net.done({x});
  EXPECT_EQ(families_of(graph), families_of(graph, {}));
}

// Images that the caller has channels last, and wants so.
TEST(ChannelsLast, FollowsTheCallersOrder) {
  for (const int64_t window : {1, 3}) {
    Net net;
    const NodeId x = net.b.permute(net.input({2, 6, 6, 32}), {0, 3, 1, 2});
    const NodeId y = net.relu(net.convolution(x, 40, window, 1, window / 2));
    const Graph graph = net.done({net.b.permute(y, {0, 2, 3, 1})});
    EXPECT_EQ(families_of(graph), window == 1 ? "matmul" : "convolution");
    const auto made = plan(graph, kChannelsLast);
    ASSERT_EQ(made->kernels.size(), 1u);
    const Graph& kernel = made->kernels[0].graph;
    for (NodeId id = 0; id < kernel.size(); ++id) {
      const Node& node = kernel.node(id);
      if (node.op == Op::kMatmul) {
        EXPECT_EQ(node.shape, (Shape{72, 40}));
      } else if (node.op == Op::kConvolution) {
        EXPECT_NE(find_channels_last_view(kernel, id), kInvalidNode);
      }
    }
  }
}

// The gradient of a norm over images that the caller has channels last, and wants so.
struct NormGradient {
  GraphBuilder b;
  Shape shape;

  NodeId image(const NodeId of_last) { return b.permute(of_last, {0, 3, 1, 2}); }
  NodeId input() { return image(b.input(DType::kBF16, {shape[0], shape[2], shape[3], shape[1]})); }
  NodeId wide(NodeId x) { return b.cast(x, DType::kF32); }
  NodeId of_channels(NodeId x) {
    const int axes[] = {1};
    return b.broadcast_in(x, shape, axes);
  }
  Graph done(NodeId gradient) {
    const auto mul = [&](NodeId p, NodeId q) { return b.binary(Op::kMul, p, q); };
    const auto vector = [&] { return of_channels(wide(b.input(DType::kBF16, {shape[1]}))); };
    const NodeId normal = mul(b.binary(Op::kSub, wide(input()), vector()), vector());
    const NodeId weighted = mul(wide(gradient), vector());
    const NodeId sum = b.reduce(Op::kReduceSum, weighted, {0, 2, 3}),
                 product = b.reduce(Op::kReduceSum, mul(weighted, normal), {0, 2, 3});
    const NodeId rest = b.binary(Op::kSub, b.binary(Op::kSub, weighted, of_channels(sum)),
                                 mul(normal, of_channels(product)));
    const NodeId result = b.permute(b.cast(rest, DType::kBF16), {0, 2, 3, 1});
    const auto graph = b.finish({result, sum, product});
    EXPECT_TRUE(graph.has_value()) << graph.error().message;
    return normalise(*graph)->graph;
  }
};

TEST(ChannelsLast, SumsOfImagesThatLieSoAreOverColumns) {
  NormGradient norm{{}, {2, 32, 6, 6}};
  const Graph graph = norm.done(norm.input());
  EXPECT_EQ(families_of(graph).find("row_reduction"), std::string::npos) << families_of(graph);
  EXPECT_NE(families_of(graph, {}).find("row_reduction"), std::string::npos);
}

// What pooling gives back is computed once, from what it has for its windows, and stored in halves.
TEST(ChannelsLast, FollowsWhatIsRepeatedAndPadded) {
  NormGradient norm{{}, {2, 32, 8, 8}};
  GraphBuilder& b = norm.b;
  const auto for_elements = [&](DType dtype, ConstantAttr outside) {
    const NodeId x = norm.image(b.input(dtype, {2, 4, 4, 32}));
    const int axes[] = {0, 1, 2, 4};
    const NodeId each = b.reshape(b.broadcast_in(x, {2, 32, 4, 2, 4, 2}, axes), norm.shape);
    return b.pad(each, {0, 0, 1, 1}, {0, 0, 1, 1}, outside);
  };
  const NodeId values = for_elements(DType::kBF16, {0}), chosen = for_elements(DType::kBool, {0});
  NodeId sum = kInvalidNode;
  for (const int64_t y : {0, 2})
    for (const int64_t x : {0, 2}) {
      const auto at = [&](NodeId padded) {
        return b.slice(b.slice(padded, 2, Dim(y), Dim(8)), 3, Dim(x), Dim(8));
      };
      const NodeId zero = b.broadcast(b.constant(DType::kF32, 0), norm.shape);
      const NodeId part = b.select(at(chosen), norm.wide(at(values)), zero);
      sum = sum == kInvalidNode ? part : b.binary(Op::kAdd, sum, part);
    }
  const Graph graph = norm.done(b.cast(sum, DType::kBF16));
  EXPECT_EQ(families_of(graph).find("row_reduction"), std::string::npos) << families_of(graph);
  EXPECT_EQ(stored(graph).find("10"), std::string::npos) << stored(graph);
  const auto made = plan(graph, kChannelsLast);
  int images = 0;
  for (const Buffer& buffer : made->buffers)
    if (buffer.kind == Buffer::Kind::kTemporary && buffer.spec.shape == Shape{2, 8, 8, 32}) {
      ++images;
      EXPECT_EQ(buffer.spec.dtype, DType::kBF16);
    }
  EXPECT_EQ(images, 1) << stored(graph);
}

TEST(ChannelsLast, AnOutputOnTheWayIsTurnedOnce) {
  Net net;
  const NodeId x = net.relu(net.convolution(net.input({2, 32, 6, 6}), 40, 3, 1, 1));
  const Graph graph = net.done({x, net.relu(net.convolution(x, 48, 3, 1, 1))});
  EXPECT_EQ(families_of(graph), "convolution pointwise convolution");
}

TEST(ChannelsLast, LeavesOtherGraphsAsTheyAre) {
  Net grouped;
  NodeId x = grouped.convolution(grouped.input({2, 32, 6, 6}), 32, 3, 1, 1);
  x = grouped.convolution(grouped.convolution(x, 32, 3, 1, 1, 16), 32, 3, 1, 1);
  const Graph graph = grouped.done({x});
  EXPECT_EQ(families_of(graph), families_of(graph, {}));
  // Windows of one channel each read images that come channel by channel.
  Net mixed;
  NodeId z = mixed.convolution(mixed.input({2, 32, 6, 6}), 35, 1, 1, 0);
  z = mixed.convolution(mixed.b.slice(z, 1, 0, 32), 32, 3, 1, 1, 32);
  const Graph of_both = mixed.done({mixed.convolution(z, 32, 1, 1, 0)});
  EXPECT_EQ(families_of(of_both), families_of(of_both, {}));
  Net few;
  const NodeId y = few.convolution(few.input({2, 32, 6, 6}), 20, 3, 1, 1);
  const Graph odd = few.done({few.convolution(y, 32, 3, 1, 1)});
  EXPECT_EQ(families_of(odd), families_of(odd, {}));
}

TEST(ChannelsLast, RandomNetsComputeTheSame) {
  int channels_last = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    const Graph graph = random_net(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + print(graph));
    const auto made = plan(graph, kChannelsLast);
    ASSERT_TRUE(made) << made.error().message;
    for (const Workload& kernel : made->kernels) {
      const auto family = classify(kernel.graph);
      ASSERT_TRUE(family) << family.error().message;
      ASSERT_EQ(*family, kernel.family);
      for (NodeId id = 0; id < kernel.graph.size(); ++id)
        channels_last += find_channels_last_view(kernel.graph, id) != kInvalidNode;
    }
    ASSERT_NO_FATAL_FAILURE(expect_same(graph, *made, seed));
  }
  EXPECT_GT(channels_last, 60);
}

}  // namespace
}  // namespace kiln
