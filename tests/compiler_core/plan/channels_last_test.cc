// Plans whose convolutions' images lie channels last: what they store, and that they compute the same.
#include "compiler_core/plan/channels_last.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/partition.h"
#include "compiler_core/plan/plan.h"
#include "tests/compiler_core/passes/random_graph.h"
#include "tests/compiler_core/plan/run_plan.h"

namespace kiln {
namespace {

using testing::pick;
using testing::Random;

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;
constexpr PartitionRules kChannelsLast{.channels_last = true};

// Sums of products of these are exact, in whatever order they are added up.
std::vector<Tensor> coarse_inputs(const Graph& graph, uint64_t seed) {
  Random random(seed);
  std::vector<Tensor> tensors;
  for (const NodeId id : graph.inputs()) {
    Tensor tensor(graph.node(id).dtype, constant_sizes(graph.node(id).shape));
    for (int64_t i = 0; i < tensor.numel(); ++i)
      tensor.set(i, static_cast<double>(pick(random, -2, 2)) / 2);
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

void expect_same(const Graph& graph, const Plan& plan, uint64_t seed) {
  const std::vector<Tensor> inputs = coarse_inputs(graph, seed);
  const auto expected = testing::evaluate(graph, testing::in_order(inputs));
  const auto actual = testing::run_plan(plan, testing::in_order(inputs));
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NO_FATAL_FAILURE(testing::expect_equal(expected[i], actual[i], 0)) << "output " << i;
}

// A model's text, in bf16.
class Net {
 public:
  NodeId input(Shape shape) { return b.input(kBF16, std::move(shape)); }
  NodeId convolution(NodeId x, int64_t results, int64_t window, int64_t stride, int64_t zeros,
                     int64_t groups = 1) {
    const int64_t channels = b.shape(x)[1].constant();
    const NodeId w = input({results, channels / groups, window, window});
    const NodeId y =
        b.convolution(x, w, {{stride, stride}, {1, 1}, {zeros, zeros}, {zeros, zeros}, groups});
    return scaled(b.cast(y, kBF16), 0.0625);
  }
  NodeId scaled(NodeId x, double factor) {
    return b.binary(Op::kMul, x, b.broadcast(b.constant(kBF16, factor), Shape(b.shape(x))));
  }
  NodeId norm(NodeId x) {
    const Shape shape = b.shape(x);
    const int axis = 1;
    const auto spread = [&](NodeId row) { return b.broadcast_in(row, shape, std::span(&axis, 1)); };
    return b.binary(Op::kAdd, b.binary(Op::kMul, x, spread(input({shape[1]}))),
                    spread(input({shape[1]})));
  }
  NodeId relu(NodeId x) {
    return b.binary(Op::kMax, x, b.broadcast(b.constant(kBF16, 0), Shape(b.shape(x))));
  }
  // Windows of 2x2 or 3x3, padded with one line on every side or not at all.
  NodeId pool(NodeId x, Op op, int64_t window, int64_t stride, int64_t zeros) {
    const double none = op == Op::kReduceMax ? -std::numeric_limits<double>::infinity() : 0;
    if (zeros > 0)
      x = b.pad(x, {0, 0, zeros, zeros}, {0, 0, zeros, zeros}, constant_bits(kBF16, none));
    const Shape from = b.shape(x);
    const int64_t h = from[2].constant(), w = from[3].constant();
    const NodeId windows = b.view(
        x, {from[0], from[1], (h - window) / stride + 1, (w - window) / stride + 1, window, window},
        {from[1] * Dim(h * w), Dim(h * w), Dim(stride * w), stride, Dim(w), 1}, 0);
    const NodeId wide = b.cast(windows, kF32);
    return b.cast(b.reduce(op, wide, {4, 5}), kBF16);
  }
  NodeId total(NodeId x) { return b.reduce(Op::kReduceSum, b.cast(x, kF32), {2, 3}); }
  Graph done(std::vector<NodeId> outputs) {
    return normalise(*b.finish(std::move(outputs)))->graph;
  }

  GraphBuilder b;
};

std::string families(const Plan& plan) {
  std::string text;
  for (const Launch& launch : plan.launches)
    text += (text.empty() ? "" : " ") +
            std::string(to_string(plan.kernels[static_cast<size_t>(launch.kernel)].family));
  return text;
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

// A bottleneck of resnet50 behind a stem of three channels, and a classifier.
Graph bottleneck(Net& net) {
  NodeId x = net.relu(net.norm(net.convolution(net.input({2, 3, 16, 16}), 64, 3, 2, 1)));
  x = net.pool(x, Op::kReduceMax, 3, 2, 1);
  for (const int64_t stride : {1, 2}) {
    NodeId y = net.relu(net.norm(net.convolution(x, 32, 1, 1, 0)));
    y = net.relu(net.norm(net.convolution(y, 32, 3, stride, 1)));
    y = net.norm(net.convolution(y, 128, 1, 1, 0));
    x = net.relu(net.b.binary(Op::kAdd, y, net.norm(net.convolution(x, 128, 1, stride, 0))));
  }
  NodeId y = net.relu(net.norm(net.convolution(x, 32, 3, 1, 1)));
  y = net.b.binary(Op::kAdd, y, net.convolution(x, 32, 1, 1, 0));
  return net.done({net.total(net.b.binary(Op::kAdd, net.convolution(y, 128, 1, 1, 0), x))});
}

TEST(ChannelsLast, ABottleneckTurnsNothing) {
  Net net;
  const Graph graph = bottleneck(net);
  // The stem and its pooling lie as they did: 3 channels.
  EXPECT_EQ(families_of(graph),
            "convolution pointwise matmul convolution matmul matmul matmul convolution matmul "
            "convolution matmul convolution matmul column_reduction");
  EXPECT_EQ(stored(graph).find("[2,128,"), std::string::npos) << stored(graph);
  EXPECT_EQ(stored(graph).find("[2,32,"), std::string::npos) << stored(graph);
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

TEST(ChannelsLast, AnOutputOnTheWayIsTurnedOnce) {
  Net net;
  const NodeId x = net.relu(net.convolution(net.input({2, 32, 6, 6}), 40, 3, 1, 1));
  const Graph graph = net.done({x, net.relu(net.convolution(x, 48, 3, 1, 1))});
  EXPECT_EQ(families_of(graph), "convolution pointwise convolution");
}

TEST(ChannelsLast, LeavesOtherGraphsAsTheyAre) {
  Net grouped;
  NodeId x = grouped.convolution(grouped.input({2, 32, 6, 6}), 32, 3, 1, 1);
  x = grouped.convolution(grouped.convolution(x, 32, 3, 1, 1, 32), 32, 3, 1, 1);
  const Graph graph = grouped.done({x});
  EXPECT_EQ(families_of(graph), families_of(graph, {}));
  Net few;
  const NodeId y = few.convolution(few.input({2, 32, 6, 6}), 20, 3, 1, 1);
  const Graph odd = few.done({few.convolution(y, 32, 3, 1, 1)});
  EXPECT_EQ(families_of(odd), families_of(odd, {}));
}

// Convolutions of one spatial size and of others, padded, strided and of odd numbers of channels,
// with residuals, joins, poolings, gates of global sums, slices; some values given out.
Graph random_net(uint64_t seed) {
  Random random(seed);
  Net net;
  std::vector<NodeId> all = {
      net.input({pick(random, 1, 2), 32, pick(random, 4, 8), pick(random, 4, 8)})};
  std::vector<NodeId> outputs;
  const auto some = [&] {
    return all[static_cast<size_t>(pick(random, std::max(0, static_cast<int>(all.size()) - 3),
                                        static_cast<int>(all.size()) - 1))];
  };
  for (int step = 0; step < 9; ++step) {
    const NodeId x = some();
    const Shape shape = net.b.shape(x);
    const int64_t h = shape[2].constant(), w = shape[3].constant();
    constexpr int64_t kResults[] = {32, 32, 32, 40, 48, 20};
    const int64_t results = kResults[pick(random, 0, 5)];
    NodeId y = x;
    switch (pick(random, 0, 9)) {
      case 0:
        y = net.convolution(x, results, 1, 1, 0);
        break;
      case 1:
      case 2:
        y = net.relu(net.norm(net.convolution(x, results, 3, pick(random, 1, 2), 1)));
        break;
      case 3:
        y = net.norm(net.convolution(x, results, h > 2 && w > 2 ? 2 : 1, 1, 0));
        break;
      case 4:
        y = net.convolution(x, results, 1, 2, 0);
        break;
      case 5:
        if (h > 2 && w > 2) y = net.pool(x, Op::kReduceMax, 3, pick(random, 1, 2), 1);
        break;
      case 6:
        if (h > 2 && w > 2) y = net.scaled(net.pool(x, Op::kReduceSum, 2, 1, 0), 0.25);
        break;
      case 7: {
        const NodeId gate = net.b.cast(net.total(x), kBF16);
        const NodeId wide = net.b.reshape(gate, {shape[0], shape[1], 1, 1});
        y = net.scaled(net.b.binary(Op::kMul, x, net.b.broadcast(wide, Shape(shape))), 0.0625);
        break;
      }
      case 8:
        if (h > 2) y = net.b.slice(x, 2, 1, h - 1);
        break;
      default:
        break;
    }
    for (const NodeId other : all)  // residuals and joins
      if (other != y && pick(random, 0, 3) == 0) {
        Shape left = net.b.shape(other), right = net.b.shape(y);
        if (left == right)
          y = net.b.binary(Op::kAdd, y, other);
        else if (left[2] == right[2] && left[3] == right[3])
          y = net.b.concat(std::vector<NodeId>{y, other}, 1);
      }
    if (y != x) all.push_back(y);
    if (pick(random, 0, 12) == 0) outputs.push_back(y);
  }
  outputs.push_back(pick(random, 0, 1) == 0 ? all.back() : net.total(all.back()));
  return net.done(std::move(outputs));
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
