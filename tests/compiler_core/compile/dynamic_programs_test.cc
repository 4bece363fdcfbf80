// Whole programs whose sizes come at run time, in `default` mode: planned and compiled once, right
// at every size. Their kernels for CUDA run on the fake GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "compiler_core/compile/compiler.h"
#include "compiler_core/compile/local.h"
#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/interpreter.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/passes/specialise.h"
#include "compiler_core/runtime/executable.h"
#include "compiler_core/tune/search_space.h"
#include "tests/compiler_core/codegen/kernel_harness.h"

namespace kiln {
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
    const int64_t h = shape_of_x[2].constant(), w = shape_of_x[3].constant();
    const NodeId field = pad(x, {0, 0, 1, 1}, {0, 0, 1, 1}, constant_bits(kF32, -INFINITY));
    const int64_t width = w + 2, plane = (h + 2) * width;
    const NodeId windows =
        view(field, {shape_of_x[0], shape_of_x[1], (h - 1) / 2 + 1, (w - 1) / 2 + 1, 3, 3},
             {shape_of_x[1] * plane, plane, 2 * width, 2, width, 1}, 0);
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
    EXPECT_TRUE(graph) << graph.error().message;
    auto form = normalise(*graph);
    EXPECT_TRUE(form) << form.error().message;
    return *std::move(form);
  }
};

using Sizes = std::vector<std::vector<int64_t>>;

std::vector<int64_t> at(const std::vector<Dim>& shape, const std::vector<int64_t>& symbols) {
  std::vector<int64_t> sizes;
  for (const Dim& dim : shape) sizes.push_back(*dim.evaluate(symbols));
  return sizes;
}

// Floats in [-1, 1], no two of a row alike; integers that are positions in a table of 50.
Tensor filled(const Node& input, const std::vector<int64_t>& symbols) {
  Tensor tensor(input.dtype, at(input.shape, symbols));
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    const double angle = 0.7 * static_cast<double>(i) + static_cast<double>(symbols[0]);
    if (input.dtype == DType::kI64)
      tensor.set_int(i, (i * 7 + i / 11 + symbols[0]) % 50);
    else
      tensor.set(i, std::sin(angle) * (input.shape.size() > 1 ? 0.5 : 1));
  }
  return tensor;
}

void expect_agrees(const NormalForm& form, const Executable& executable,
                   const LocalCompilation& local, const std::vector<int64_t>& symbols) {
  SCOPED_TRACE(::testing::PrintToString(symbols));
  std::vector<Tensor> inputs, outputs;
  for (const NodeId id : form.graph.inputs())
    inputs.push_back(filled(form.graph.node(id), symbols));
  std::vector<const Tensor*> operands;
  std::vector<void*> in, out;
  for (Tensor& tensor : inputs) {
    in.push_back(tensor.data());
    operands.push_back(&tensor);
  }
  for (const int buffer : local.program.output_buffers) {
    const TensorSpec& spec = local.program.buffers[static_cast<size_t>(buffer)].spec;
    outputs.emplace_back(spec.dtype, at(spec.shape, symbols));
  }
  for (Tensor& tensor : outputs) out.push_back(tensor.data());
  ThreadPool pool(2);
  const Status ran = executable.run(in, out, pool, symbols);
  ASSERT_TRUE(ran) << ran.error().message;
  const auto expected = interpret(form.graph, operands, Precision::kHigh);
  ASSERT_TRUE(expected) << expected.error().message;
  for (size_t o = 0; o < outputs.size(); ++o)
    for (int64_t i = 0; i < outputs[o].numel(); ++i) {
      const double wanted = (*expected)[o].get(i);
      ASSERT_NEAR(outputs[o].get(i), wanted, 2e-4 * (1 + std::abs(wanted)))
          << "output " << o << ", element " << i;
    }
}

void expect_right(const NormalForm& form, const Sizes& sizes) {
  static const HostCompiler compiler = *HostCompiler::find();
  const auto local = compile_locally(form.graph, form.digest, host_cpu_target(), compiler, 2);
  ASSERT_TRUE(local) << local.error().message;
  const auto executable = Executable::load(local->program, local->artifacts);
  ASSERT_TRUE(executable) << executable.error().message;
  for (const auto& symbols : sizes) expect_agrees(form, *executable, *local, symbols);
}

// As many kernels are launched as when the sizes are constants.
void expect_as_few_launches(const NormalForm& form, const std::vector<int64_t>& sizes) {
  std::vector<Symbol> symbols;
  for (const int64_t size : sizes) symbols.push_back({{size, size}, size});
  const auto fixed = normalise(*specialise(form.graph, symbols));
  EXPECT_EQ(plan(form.graph)->launches.size(), plan(fixed->graph)->launches.size());
}

// The first schedule of every kernel, on the fake GPU, at the sizes that the launches tell it.
void expect_right_on_gpu(const NormalForm& form, const Sizes& sizes) {
  const Target target = *Target::parse("cuda:sm_90a");
  const auto planned = plan(form.graph);
  ASSERT_TRUE(planned) << planned.error().message;
  for (const Launch& launch : planned->launches) {
    const Workload& kernel = planned->kernels[static_cast<size_t>(launch.kernel)];
    const auto space = search_space(kernel, target);
    ASSERT_TRUE(space) << to_string(kernel.family) << ": " << space.error().message;
    Sizes dims;
    for (const auto& symbols : sizes) dims.push_back(at(launch.dims, symbols));
    EXPECT_EQ(testing::check_sizes(kernel, (*space)[0], target, dims), "")
        << to_string(kernel.family);
  }
}

// A stem, a residual of a strided window and a 1 x 1 shortcut, channels on their own, a classifier.
TEST(DynamicPrograms, AConvolutionalNetworkOfAnyBatch) {
  Model m;
  NodeId x = m.input(kF32, {m.size(512, 8), 3, 14, 14});
  x = m.max_pool(m.relu(m.batch_norm(m.convolve(x, 8, 3, 1))));
  const NodeId shortcut = m.batch_norm(m.convolve(x, 16, 1, 1));
  x = m.relu(m.binary(Op::kAdd, m.batch_norm(m.convolve(x, 16, 3, 1)), shortcut));
  x = m.relu(m.batch_norm(m.convolve(x, 16, 3, 2, 16)));
  x = m.average_pool(x);
  x = m.reshape(x, {m.shape(x)[0], 16});
  const NormalForm form = m.done({m.linear(x, 10)});
  expect_right(form, {{1}, {2}, {7}, {64}});
  expect_right_on_gpu(form, {{1}, {5}});
  expect_as_few_launches(form, {8});
}

TEST(DynamicPrograms, ALossOverAnEmbedding) {
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
  expect_right(m.done({m.unary(Op::kNeg, m.reduce(Op::kReduceSum, picked, {0})), logits}),
               {{1, 1}, {2, 128}, {7, 5}, {1, 129}});
}

TEST(DynamicPrograms, EmbeddingsOfFixedPositions) {
  Model m;
  const NodeId ids = m.ids({m.size(1000, 8), 128});
  const NodeId rows = m.gather(m.weight({50, 40}), ids);
  expect_right(m.done({m.with(Op::kAdd, rows, m.weight({128, 40}))}), {{1}, {3}, {40}});
}

TEST(DynamicPrograms, ATransformerBlockOfAnyBatch) {
  Model m;
  const NodeId x = m.input(kF32, {m.size(64, 4), 12, 32});
  const NormalForm form = m.done({m.block(x, 2, 16)});
  expect_right(form, {{1}, {2}, {9}});
  expect_as_few_launches(form, {4});
}

TEST(DynamicPrograms, ATransformerBlockOfAnyBatchAndLength) {
  Model m;
  const NodeId x = m.input(kF32, {m.size(512, 4), m.size(512, 12), 32});
  const NormalForm form = m.done({m.block(x, 2, 16)});
  expect_right(form, {{1, 1}, {33, 2}, {7, 5}, {1, 130}});
  expect_as_few_launches(form, {4, 12});
}

// Embeddings of tokens and of positions, a causal layer, logits, and the best token of each place.
TEST(DynamicPrograms, ALanguageModelOfAnyBatchAndLength) {
  Model m;
  const Dim batch = m.size(256, 4), positions = m.size(128, 24);
  NodeId x = m.gather(m.weight({50, 32}), m.ids({batch, positions}));
  x = m.with(Op::kAdd, x, m.gather(m.weight({128, 32}), m.iota(DType::kI64, positions)));
  x = m.binary(Op::kAdd, x, m.causal_attention(m.layer_norm(x), 4, 8));
  const NodeId logits = m.linear(m.layer_norm(x), 50);
  const NodeId best = m.with(Op::kEq, logits, m.last(Op::kReduceMax, logits));
  const NodeId token = m.broadcast(m.iota(DType::kI64, 50), {batch, positions, 50});
  const NodeId none = m.broadcast(m.constant_int(DType::kI64, 50), {batch, positions, 50});
  const NormalForm form =
      m.done({logits, m.reduce(Op::kReduceMin, m.select(best, token, none), {2})});
  // Positions, batch: the order in which normalising numbers them.
  expect_right(form, {{1, 1}, {7, 3}, {128, 1}});
  expect_right_on_gpu(form, {{1, 1}, {19, 2}});
  expect_as_few_launches(form, {24, 4});
  const auto planned = plan(form.graph);
  EXPECT_EQ(std::count_if(planned->kernels.begin(), planned->kernels.end(),
                          [](const Workload& w) { return w.family == Family::kAttention; }),
            1);
}

// The five greatest of each row, running sums of what they are, and counts of where they lie.
TEST(DynamicPrograms, SortsScansAndScattersOfAnyBatch) {
  Model m;
  const Dim batch = m.size(4000, 32);
  const NodeId x = m.input(kF32, {batch, 50});
  const NodeId order = m.slice(m.argsort(x, true), 1, 0, 5);
  const NodeId sums = m.scan_sum(m.softmax(x), 1);
  const NodeId flat = m.reshape(order, {batch * 5});
  const NodeId ones = m.broadcast(m.constant(kF32, 1), {batch * 5});
  const NodeId counts = m.scatter(m.weight({50}), flat, ones, Combine::kAdd);
  const NormalForm form = m.done({order, sums, counts, m.scan_sum(x, 0)});
  expect_right(form, {{1}, {2}, {33}, {2000}});
  expect_right_on_gpu(form, {{1}, {70}});
  expect_as_few_launches(form, {32});
}

}  // namespace
}  // namespace kiln
