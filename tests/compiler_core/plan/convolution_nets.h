// Convolutional nets in bf16, small ones and random ones, whose results are exact: the order in which
// sums are taken changes no bit.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "compiler_core/base/tensor.h"
#include "compiler_core/ir/builder.h"
#include "compiler_core/passes/normalise.h"
#include "tests/compiler_core/passes/random_graph.h"

namespace kiln::testing {

// Sums of products of these are exact, in whatever order they are added up.
inline std::vector<Tensor> coarse_inputs(const Graph& graph, uint64_t seed) {
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

// A model's text, in bf16.
class Net {
 public:
  NodeId input(Shape shape) { return b.input(DType::kBF16, std::move(shape)); }
  NodeId convolution(NodeId x, int64_t results, int64_t window, int64_t stride, int64_t zeros,
                     int64_t groups = 1) {
    const int64_t channels = b.shape(x)[1].constant();
    const NodeId w = input({results, channels / groups, window, window});
    const NodeId y =
        b.convolution(x, w, {{stride, stride}, {1, 1}, {zeros, zeros}, {zeros, zeros}, groups});
    return scaled(b.cast(y, DType::kBF16), 0.0625);
  }
  NodeId scaled(NodeId x, double factor) {
    return b.binary(Op::kMul, x, b.broadcast(b.constant(DType::kBF16, factor), Shape(b.shape(x))));
  }
  NodeId norm(NodeId x) {
    const Shape shape = b.shape(x);
    const int axis = 1;
    const auto spread = [&](NodeId row) { return b.broadcast_in(row, shape, std::span(&axis, 1)); };
    return b.binary(Op::kAdd, b.binary(Op::kMul, x, spread(input({shape[1]}))),
                    spread(input({shape[1]})));
  }
  NodeId relu(NodeId x) {
    return b.binary(Op::kMax, x, b.broadcast(b.constant(DType::kBF16, 0), Shape(b.shape(x))));
  }
  // Windows of 2x2 or 3x3, padded with one line on every side or not at all.
  NodeId pool(NodeId x, Op op, int64_t window, int64_t stride, int64_t zeros) {
    const double none = op == Op::kReduceMax ? -std::numeric_limits<double>::infinity() : 0;
    if (zeros > 0)
      x = b.pad(x, {0, 0, zeros, zeros}, {0, 0, zeros, zeros}, constant_bits(DType::kBF16, none));
    const Shape from = b.shape(x);
    const int64_t h = from[2].constant(), w = from[3].constant();
    const NodeId windows = b.view(
        x, {from[0], from[1], (h - window) / stride + 1, (w - window) / stride + 1, window, window},
        {from[1] * Dim(h * w), Dim(h * w), Dim(stride * w), stride, Dim(w), 1}, 0);
    const NodeId wide = b.cast(windows, DType::kF32);
    return b.cast(b.reduce(op, wide, {4, 5}), DType::kBF16);
  }
  NodeId total(NodeId x) { return b.reduce(Op::kReduceSum, b.cast(x, DType::kF32), {2, 3}); }
  Graph done(std::vector<NodeId> outputs) {
    return normalise(*b.finish(std::move(outputs)))->graph;
  }

  // A call chooses how many images there are.
  void open_images() { images = Dim::symbol(b.symbol({0, 1 << 20}, 2)); }

  GraphBuilder b;
  Dim images = 2;
};

// A bottleneck of resnet50 behind a stem of three channels, and a classifier.
inline Graph bottleneck(Net& net) {
  NodeId x = net.relu(net.norm(net.convolution(net.input({net.images, 3, 16, 16}), 64, 3, 2, 1)));
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

// What efficient nets are made of: windows of a channel each between products of few results and many,
// and a gate of global sums.
inline Graph inverted_bottlenecks(Net& net) {
  NodeId x = net.relu(net.norm(net.convolution(net.input({net.images, 3, 16, 16}), 32, 3, 2, 1)));
  for (const int64_t stride : {1, 2, 1}) {
    NodeId y = net.relu(net.norm(net.convolution(x, 48, 1, 1, 0)));
    y = net.relu(net.norm(net.convolution(y, 48, stride == 1 ? 3 : 5, stride, stride, 48)));
    const NodeId gate = net.b.cast(net.total(y), DType::kBF16);
    const Shape shape = net.b.shape(y);
    const NodeId wide = net.b.reshape(gate, {shape[0], shape[1], 1, 1});
    const NodeId few = net.relu(net.convolution(wide, 4, 1, 1, 0));
    const NodeId many = net.relu(net.convolution(few, 48, 1, 1, 0));
    y = net.scaled(net.b.binary(Op::kMul, y, net.b.broadcast(many, Shape(shape))), 0.0625);
    y = net.norm(net.convolution(y, 16, 1, 1, 0));
    x = net.b.shape(x) == net.b.shape(y) ? net.b.binary(Op::kAdd, x, y) : y;
  }
  return net.done({net.total(net.convolution(x, 64, 1, 1, 0))});
}

// Blocks of ConvNeXt: a window of a channel each, products of rows of channels, a residual stream.
inline Graph rows_between_windows(Net& net) {
  NodeId x = net.convolution(net.input({net.images, 3, 16, 16}), 32, 4, 4, 0);
  for (int i = 0; i < 2; ++i) {
    const NodeId w = net.input({32, 1, 7, 7});
    NodeId windows = net.b.convolution(x, w, {{1, 1}, {1, 1}, {3, 3}, {3, 3}, 32});
    const NodeId bias =
        net.b.broadcast_in(net.input({32}), Shape(net.b.shape(windows)), std::vector<int>{1});
    windows =
        net.b.cast(net.b.binary(Op::kAdd, windows, net.b.cast(bias, DType::kF32)), DType::kBF16);
    // A norm over channels: what it subtracts is exact.
    const NodeId wide =
        net.b.cast(net.b.permute(windows, std::vector<int>{0, 2, 3, 1}), DType::kF32);
    const NodeId greatest = net.b.broadcast_in(net.b.reduce(Op::kReduceMax, wide, {3}),
                                               Shape(net.b.shape(wide)), std::vector<int>{0, 1, 2});
    const NodeId rows = net.b.reshape(
        net.b.cast(net.b.binary(Op::kSub, wide, greatest), DType::kBF16), {net.images * 16, 32});
    const auto product = [&](NodeId of, Shape weight) {
      const NodeId y = net.b.matmul(of, net.input(std::move(weight)));
      return net.scaled(net.b.cast(y, DType::kBF16), 0.0625);
    };
    const NodeId narrow = product(net.relu(product(rows, {32, 64})), {64, 32});
    const NodeId y = net.b.reshape(narrow, {net.images, 4, 4, 32});
    x = net.b.binary(Op::kAdd, x, net.b.permute(y, std::vector<int>{0, 3, 1, 2}));
  }
  return net.done({net.total(net.convolution(x, 48, 2, 2, 0))});
}

// Convolutions of one spatial size and of others, padded, strided and of odd numbers of channels,
// with residuals, joins, poolings, gates of global sums, slices; some values given out.
inline Graph random_net(uint64_t seed) {
  Random random(seed);
  Net net;
  constexpr int64_t kChannels[] = {32, 32, 3, 1, 16, 6};
  std::vector<NodeId> all = {net.input(
      {pick(random, 1, 2), kChannels[pick(random, 0, 5)], pick(random, 4, 8), pick(random, 4, 8)})};
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
    switch (pick(random, 0, 10)) {
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
        const NodeId gate = net.b.cast(net.total(x), DType::kBF16);
        const NodeId wide = net.b.reshape(gate, {shape[0], shape[1], 1, 1});
        y = net.scaled(net.b.binary(Op::kMul, x, net.b.broadcast(wide, Shape(shape))), 0.0625);
        break;
      }
      case 8:
        if (h > 2) y = net.b.slice(x, 2, 1, h - 1);
        break;
      case 9:
        if (const int64_t channels = shape[1].constant(); channels % 16 == 0)
          y = net.norm(net.convolution(x, channels, 3, pick(random, 1, 2), 1, channels));
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

}  // namespace kiln::testing
