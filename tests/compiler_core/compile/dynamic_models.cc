#include "tests/compiler_core/compile/dynamic_models.h"

#include <array>
#include <cmath>

#include "compiler_core/base/check.h"
#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/verify.h"

namespace kiln::testing {
namespace {

constexpr DType kF32 = DType::kF32;

class Model : public GraphBuilder {
 public:
  Dim size(int64_t max, int64_t hint) { return Dim::symbol(symbol({1, max}, hint)); }
  NodeId weight(Shape shape) { return input(kF32, std::move(shape)); }
  NodeId with(Op op, NodeId a, NodeId b) { return binary(op, a, broadcast(b, Shape(shape(a)))); }
  NodeId with_number(Op op, NodeId a, double b) { return with(op, a, constant(dtype(a), b)); }
  NodeId relu(NodeId x) { return with_number(Op::kMax, x, 0); }
  NodeId last(Op op, NodeId x) {
    return reduce(op, x, {static_cast<int>(shape(x).size()) - 1}, true);
  }
  NodeId softmax(NodeId x) {
    const NodeId e = unary(Op::kExp, with(Op::kSub, x, last(Op::kReduceMax, x)));
    return with(Op::kDiv, e, last(Op::kReduceSum, e));
  }
  NodeId mean(NodeId x) {
    const double count = static_cast<double>(shape(x).back().constant());
    return with_number(Op::kMul, last(Op::kReduceSum, x), 1 / count);
  }
  NodeId layer_norm(NodeId x) {
    const Dim width = shape(x).back();
    const NodeId centred = with(Op::kSub, x, mean(x));
    const NodeId variance = mean(binary(Op::kMul, centred, centred));
    const NodeId scale = unary(Op::kRsqrt, with_number(Op::kAdd, variance, 1e-5));
    const NodeId normal = with(Op::kMul, centred, scale);
    return with(Op::kAdd, with(Op::kMul, normal, weight({width})), weight({width}));
  }
  // x [..., from] to [..., to].
  NodeId linear(NodeId x, int64_t to) {
    Shape shape_of_result = shape(x);
    const Dim from = shape_of_result.back();
    shape_of_result.back() = to;
    const NodeId flat = reshape(x, {numel(shape(x), 1), from});
    const NodeId product = matmul(flat, permute(weight({to, from}), {1, 0}));
    return reshape(with(Op::kAdd, product, weight({to})), std::move(shape_of_result));
  }
  // Of all axes but the last `left_out`.
  static Dim numel(const Shape& shape, size_t left_out) {
    Dim size = 1;
    for (size_t i = 0; i + left_out < shape.size(); ++i) size = size * shape[i];
    return size;
  }

  NodeId convolve(NodeId x, int64_t channels, int64_t window, int64_t stride, int64_t groups = 1) {
    const Dim each = shape(x)[1].constant() / groups;
    const int64_t pad = window / 2;
    const NodeId w = weight({channels, each, window, window});
    return convolution(x, w, {{stride, stride}, {1, 1}, {pad, pad}, {pad, pad}, groups});
  }
  // y * scale + shift, each channel its own.
  NodeId batch_norm(NodeId x) {
    const Dim channels = shape(x)[1];
    const auto channelwise = [&] { return reshape(weight({channels}), {channels, 1, 1}); };
    return with(Op::kAdd, with(Op::kMul, with(Op::kSub, x, channelwise()), channelwise()),
                channelwise());
  }
  // 3 x 3 windows, every second one.
  NodeId max_pool(NodeId x) {
    const Shape shape_of_x = shape(x);
    const Dim &h = shape_of_x[2], &w = shape_of_x[3];
    const NodeId field = pad(x, {0, 0, 1, 1}, {0, 0, 1, 1}, constant_bits(kF32, -INFINITY));
    const Dim width = w + 2, plane = (h + 2) * width;
    const NodeId windows = view(
        field,
        {shape_of_x[0], shape_of_x[1], *count_windows(h - 1, 2), *count_windows(w - 1, 2), 3, 3},
        {shape_of_x[1] * plane, plane, width * 2, 2, width, 1}, 0);
    return reduce(Op::kReduceMax, windows, {4, 5});
  }
  NodeId average_pool(NodeId x) {
    const Shape shape_of_x = shape(x);
    return mean(reshape(x, {shape_of_x[0], shape_of_x[1], shape_of_x[2] * shape_of_x[3]}));
  }

  // Self attention of x [batch, positions, heads * width], then a residual.
  NodeId attention(NodeId x, int64_t heads, int64_t width) {
    const Dim batch = shape(x)[0], positions = shape(x)[1];
    const auto split = [&] {
      return permute(reshape(linear(x, heads * width), {batch, positions, heads, width}),
                     {0, 2, 1, 3});
    };
    const NodeId q = split(), k = split(), v = split();
    const double scale = 1 / std::sqrt(static_cast<double>(width));
    const NodeId scores = with_number(Op::kMul, matmul(q, permute(k, {0, 1, 3, 2})), scale);
    const NodeId mixed = permute(matmul(softmax(scores), v), {0, 2, 1, 3});
    return linear(reshape(mixed, {batch, positions, heads * width}), heads * width);
  }
  NodeId block(NodeId x, int64_t heads, int64_t width) {
    x = binary(Op::kAdd, x, attention(layer_norm(x), heads, width));
    const NodeId wide = unary(Op::kTanh, linear(layer_norm(x), 2 * heads * width));
    return binary(Op::kAdd, x, linear(wide, heads * width));
  }
  // The same of a language model: each head of keys and values serves two of queries, and no token
  // sees those behind it.
  NodeId causal_attention(NodeId x, int64_t heads, int64_t width) {
    const Dim batch = shape(x)[0], positions = shape(x)[1];
    const auto split = [&](int64_t own) {
      const NodeId rows = linear(x, own * width);
      return permute(reshape(rows, {batch, positions, own, width}), {0, 2, 1, 3});
    };
    const auto shared = [&] {
      const NodeId own = reshape(split(heads / 2), {batch, heads / 2, 1, positions, width});
      return reshape(broadcast(own, {batch, heads / 2, 2, positions, width}),
                     {batch, heads, positions, width});
    };
    const NodeId q = split(heads), k = shared(), v = shared();
    const NodeId scores = matmul(q, permute(k, {0, 1, 3, 2}));
    const Shape full = shape(scores);
    const NodeId place = iota(DType::kI64, positions);
    const NodeId seen = binary(Op::kLe, broadcast_in(place, full, std::array{3}),
                               broadcast_in(place, full, std::array{2}));
    const NodeId hidden = broadcast(constant(kF32, -INFINITY), full);
    const NodeId mixed = matmul(softmax(select(seen, scores, hidden)), v);
    return linear(reshape(permute(mixed, {0, 2, 1, 3}), {batch, positions, heads * width}),
                  heads * width);
  }
  NodeId ids(Shape shape) { return input(DType::kI64, std::move(shape)); }

  NormalForm done(std::vector<NodeId> outputs) {
    auto graph = finish(std::move(outputs));
    CHECK(graph.has_value(), "a valid graph");
    auto form = normalise(*graph);
    CHECK(form.has_value(), "a normal form");
    return *std::move(form);
  }
};

// Floats in [-1, 1], no two of a row alike; integers that are positions in a table of 50.
Tensor filled(const Node& input, std::span<const int64_t> symbols) {
  Tensor tensor(input.dtype, sizes_at(input.shape, symbols));
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    const double angle = 0.7 * static_cast<double>(i) + static_cast<double>(symbols[0]);
    if (input.dtype == DType::kI64)
      tensor.set_int(i, (i * 7 + i / 11 + symbols[0]) % 50);
    else
      tensor.set(i, std::sin(angle) * (input.shape.size() > 1 ? 0.5 : 1));
  }
  return tensor;
}

}  // namespace

NormalForm convolutional_network() {
  Model m;
  NodeId x = m.input(kF32, {m.size(512, 8), 3, 14, 14});
  x = m.max_pool(m.relu(m.batch_norm(m.convolve(x, 8, 3, 1))));
  const NodeId shortcut = m.batch_norm(m.convolve(x, 16, 1, 1));
  x = m.relu(m.binary(Op::kAdd, m.batch_norm(m.convolve(x, 16, 3, 1)), shortcut));
  x = m.relu(m.batch_norm(m.convolve(x, 16, 3, 2, 16)));
  x = m.average_pool(x);
  x = m.reshape(x, {m.shape(x)[0], 16});
  return m.done({m.linear(x, 10)});
}

NormalForm network_of_any_image() {
  Model m;
  const Dim batch = m.size(64, 2), h = m.size(60, 3), w = m.size(60, 4);
  NodeId x = m.input(kF32, {batch, 3, h * 4, w * 4});
  x = m.max_pool(m.relu(m.batch_norm(m.convolve(x, 8, 3, 1))));
  const NodeId shortcut = m.batch_norm(m.convolve(x, 16, 1, 1));
  x = m.relu(m.binary(Op::kAdd, m.batch_norm(m.convolve(x, 16, 3, 1)), shortcut));
  x = m.relu(m.batch_norm(m.convolve(x, 16, 3, 2, 16)));
  const NodeId small = m.with(Op::kAdd, x, m.input(kF32, {16, h, w}));
  const NodeId most = m.reduce(Op::kReduceMax, small, {2, 3});
  return m.done({m.linear(most, 10), small});
}

NormalForm embedding_loss() {
  Model m;
  const Dim batch = m.size(256, 4), positions = m.size(256, 16);
  const NodeId ids = m.ids({batch, positions}), targets = m.ids({batch, positions});
  const NodeId logits = m.linear(m.gather(m.weight({50, 24}), ids), 50);
  const NodeId flat = m.reshape(logits, {batch * positions, 50});
  const NodeId shifted = m.with(Op::kSub, flat, m.last(Op::kReduceMax, flat));
  const NodeId log = m.unary(Op::kLog, m.last(Op::kReduceSum, m.unary(Op::kExp, shifted)));
  const NodeId row = m.iota(DType::kI64, batch * positions);
  const NodeId at =
      m.binary(Op::kAdd, m.with_number(Op::kMul, row, 50), m.reshape(targets, {batch * positions}));
  const NodeId picked =
      m.gather(m.reshape(m.with(Op::kSub, shifted, log), {batch * positions * 50}), at);
  return m.done({m.unary(Op::kNeg, m.reduce(Op::kReduceSum, picked, {0})), logits});
}

NormalForm embedding_of_fixed_positions() {
  Model m;
  const NodeId ids = m.ids({m.size(1000, 8), 128});
  const NodeId rows = m.gather(m.weight({50, 40}), ids);
  return m.done({m.with(Op::kAdd, rows, m.weight({128, 40}))});
}

NormalForm transformer_of_any_batch() {
  Model m;
  const NodeId x = m.input(kF32, {m.size(64, 4), 12, 32});
  return m.done({m.block(x, 2, 16)});
}

NormalForm transformer_of_any_batch_and_length() {
  Model m;
  const NodeId x = m.input(kF32, {m.size(512, 4), m.size(512, 12), 32});
  return m.done({m.block(x, 2, 16)});
}

NormalForm language_model() {
  Model m;
  const Dim batch = m.size(256, 4), positions = m.size(128, 24);
  NodeId x = m.gather(m.weight({50, 32}), m.ids({batch, positions}));
  x = m.with(Op::kAdd, x, m.gather(m.weight({128, 32}), m.iota(DType::kI64, positions)));
  x = m.binary(Op::kAdd, x, m.causal_attention(m.layer_norm(x), 4, 8));
  const NodeId logits = m.linear(m.layer_norm(x), 50);
  const NodeId best = m.with(Op::kEq, logits, m.last(Op::kReduceMax, logits));
  const NodeId token = m.broadcast(m.iota(DType::kI64, 50), {batch, positions, 50});
  const NodeId none = m.broadcast(m.constant_int(DType::kI64, 50), {batch, positions, 50});
  return m.done({logits, m.reduce(Op::kReduceMin, m.select(best, token, none), {2})});
}

NormalForm sorts_scans_and_scatters() {
  Model m;
  const Dim batch = m.size(4000, 32);
  const NodeId x = m.input(kF32, {batch, 50});
  const NodeId order = m.slice(m.argsort(x, true), 1, 0, 5);
  const NodeId sums = m.scan_sum(m.softmax(x), 1);
  const NodeId flat = m.reshape(order, {batch * 5});
  const NodeId ones = m.broadcast(m.constant(kF32, 1), {batch * 5});
  const NodeId counts = m.scatter(m.weight({50}), flat, ones, Combine::kAdd);
  return m.done({order, sums, counts, m.scan_sum(x, 0)});
}

std::vector<int64_t> sizes_at(const Shape& shape, std::span<const int64_t> symbols) {
  std::vector<int64_t> sizes;
  for (const Dim& dim : shape) sizes.push_back(*dim.evaluate(symbols));
  return sizes;
}

std::vector<Tensor> model_inputs(const Graph& model, std::span<const int64_t> symbols) {
  std::vector<Tensor> inputs;
  for (const NodeId id : model.inputs()) inputs.push_back(filled(model.node(id), symbols));
  return inputs;
}

}  // namespace kiln::testing
