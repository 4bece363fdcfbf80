// Index maps: whatever chain of them the builder is given, the result reads the same elements as
// the chain done one step at a time.
#include <gtest/gtest.h>

#include <random>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/interpreter.h"

namespace kiln {
namespace {

// One index map on concrete data, written down a second time as plainly as possible.
struct Plain {
  std::vector<int64_t> sizes;
  std::vector<float> data;

  int64_t at(const std::vector<int64_t>& index) const {
    int64_t flat = 0;
    for (size_t k = 0; k < sizes.size(); ++k) flat = flat * sizes[k] + index[k];
    return flat;
  }
  template <class Source>
  Plain remap(std::vector<int64_t> to, Source source) const {
    Plain out{std::move(to), {}};
    int64_t total = 1;
    for (int64_t size : out.sizes) total *= size;
    std::vector<int64_t> index(out.sizes.size());
    for (int64_t flat = 0; flat < total; ++flat) {
      for (int64_t k = static_cast<int64_t>(index.size()), rest = flat; k-- > 0;) {
        index[static_cast<size_t>(k)] = rest % out.sizes[static_cast<size_t>(k)];
        rest /= out.sizes[static_cast<size_t>(k)];
      }
      out.data.push_back(data[static_cast<size_t>(at(source(index)))]);
    }
    return out;
  }
};

Shape shape_of(const std::vector<int64_t>& sizes) {
  return {sizes.begin(), sizes.end()};
}

// A random step applied to both.
void random_step(std::mt19937& random, GraphBuilder& builder, NodeId& node, Plain& plain) {
  const size_t rank = plain.sizes.size();
  const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  switch (random() % 5) {
    case 0: {  // permute
      std::vector<int> axes(rank);
      std::iota(axes.begin(), axes.end(), 0);
      std::shuffle(axes.begin(), axes.end(), random);
      node = builder.permute(node, axes);
      std::vector<int64_t> to;
      for (int axis : axes) to.push_back(plain.sizes[static_cast<size_t>(axis)]);
      plain = plain.remap(to, [&](const std::vector<int64_t>& index) {
        std::vector<int64_t> from(rank);
        for (size_t k = 0; k < rank; ++k) from[static_cast<size_t>(axes[k])] = index[k];
        return from;
      });
      break;
    }
    case 1: {  // slice, perhaps backwards
      if (rank == 0) break;
      const size_t axis = pick(rank);
      const int64_t size = plain.sizes[axis];
      const int64_t step = std::array<int64_t, 4>{1, 2, -1, -2}[pick(4)];
      const int64_t start = static_cast<int64_t>(pick(static_cast<size_t>(size)));
      const int64_t room = step > 0 ? size - start : start + 1;
      const int64_t most = (room + std::abs(step) - 1) / std::abs(step);
      const int64_t count = 1 + static_cast<int64_t>(pick(static_cast<size_t>(most)));
      node = builder.slice(node, static_cast<int>(axis), start, count, step);
      std::vector<int64_t> to = plain.sizes;
      to[axis] = count;
      plain = plain.remap(to, [&](std::vector<int64_t> index) {
        index[axis] = start + index[axis] * step;
        return index;
      });
      break;
    }
    case 2: {  // reshape: merge two neighbours, or split one
      std::vector<int64_t> to = plain.sizes;
      if (rank >= 2 && (random() & 1) != 0) {
        const size_t axis = pick(rank - 1);
        to[axis] *= to[axis + 1];
        to.erase(to.begin() + static_cast<int64_t>(axis) + 1);
      } else if (rank >= 1) {
        const size_t axis = pick(rank);
        const int64_t factor = to[axis] % 2 == 0 ? 2 : 1;
        to[axis] /= factor;
        to.insert(to.begin() + static_cast<int64_t>(axis) + (random() & 1), factor);
      }
      node = builder.reshape(node, shape_of(to));
      plain.sizes = to;
      break;
    }
    case 3: {  // broadcast a new axis in
      std::vector<int64_t> to = plain.sizes;
      to.insert(to.begin(), 1 + static_cast<int64_t>(pick(3)));
      node = builder.broadcast(node, shape_of(to));
      plain = plain.remap(to, [](const std::vector<int64_t>& index) {
        return std::vector<int64_t>(index.begin() + 1, index.end());
      });
      break;
    }
    default: {  // flatten
      int64_t total = 1;
      for (int64_t size : plain.sizes) total *= size;
      node = builder.reshape(node, {total});
      plain.sizes = {total};
    }
  }
}

TEST(View, AnyChainOfIndexMapsReadsTheSameElements) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const std::vector<int64_t> sizes = {4, 1 + static_cast<int64_t>(random() % 3), 6};
    Tensor input(DType::kF32, sizes);
    Plain plain{sizes, {}};
    for (int64_t i = 0; i < input.numel(); ++i) {
      input.set(i, static_cast<double>(i));
      plain.data.push_back(static_cast<float>(i));
    }
    GraphBuilder builder;
    NodeId node = builder.input(DType::kF32, shape_of(sizes));
    for (int step = 0; step < 6 && plain.data.size() < 2000; ++step)
      random_step(random, builder, node, plain);
    auto graph = builder.finish({node});
    ASSERT_TRUE(graph) << graph.error().message;
    const Tensor* inputs[] = {&input};
    auto outputs = interpret(*graph, inputs);
    ASSERT_TRUE(outputs) << outputs.error().message;
    ASSERT_EQ((*outputs)[0].sizes(), plain.sizes) << "seed " << seed;
    const auto actual = (*outputs)[0].as<float>();
    EXPECT_TRUE(std::equal(actual.begin(), actual.end(), plain.data.begin())) << "seed " << seed;
  }
}

TEST(View, ChainsThatComposeToTheSameMapAreOneNode) {
  GraphBuilder builder;
  const NodeId x = builder.input(DType::kF32, {4, 6});
  EXPECT_EQ(builder.permute(builder.permute(x, {1, 0}), {1, 0}), x);
  EXPECT_EQ(builder.reshape(builder.reshape(x, {2, 2, 6}), {4, 6}), x);
  const NodeId sliced_first = builder.permute(builder.slice(x, 0, 1, 2), {1, 0});
  const NodeId permuted_first = builder.slice(builder.permute(x, {1, 0}), 1, 1, 2);
  EXPECT_EQ(sliced_first, permuted_first);
  EXPECT_EQ(builder.slice(builder.slice(x, 1, 3, 3, -1), 1, 2, 3, -1), builder.slice(x, 1, 1, 3));
  EXPECT_EQ(builder.permute(builder.reshape(x, {4, 1, 6}), {1, 2, 0}),
            builder.reshape(builder.permute(x, {1, 0}), {1, 6, 4}));
}

TEST(View, DoesNotComposeAcrossACarry) {
  // Flattening a transpose is no single affine map of its source.
  GraphBuilder builder;
  const NodeId x = builder.input(DType::kF32, {2, 3});
  const NodeId flat = builder.reshape(builder.permute(x, {1, 0}), {6});
  EXPECT_EQ(builder.node(builder.node(flat).operands[0]).op, Op::kView);
}

TEST(View, SymbolicSizesCompose) {
  GraphBuilder builder;
  const Dim batch = Dim::symbol(builder.symbol({1, 4096}, 32));
  const NodeId x = builder.input(DType::kF32, {batch, 8, 4});
  EXPECT_EQ(builder.reshape(builder.reshape(x, {batch, 32}), {batch, 8, 4}), x);
  EXPECT_EQ(builder.permute(builder.permute(x, {2, 0, 1}), {1, 2, 0}), x);
  const NodeId wide = builder.broadcast(builder.constant(DType::kF32, 1), {batch, 8, 4});
  EXPECT_TRUE(builder.finish({builder.binary(Op::kMul, x, wide)}));
}

// Two symbolic axes joined and taken apart again.
TEST(View, AxesOfTwoSymbolsCompose) {
  GraphBuilder builder;
  const Dim batch = Dim::symbol(builder.symbol({0, 64}, 4));
  const Dim positions = Dim::symbol(builder.symbol({0, 512}, 12));
  const NodeId x = builder.input(DType::kF32, {batch, positions, 6});
  const NodeId flat = builder.reshape(x, {batch * positions, 6});
  EXPECT_EQ(builder.reshape(flat, {batch, positions, 6}), x);
  const NodeId heads =
      builder.permute(builder.reshape(flat, {batch, positions, 2, 3}), {0, 2, 1, 3});
  EXPECT_EQ(builder.node(heads).operands[0], x);
  const NodeId bias = builder.input(DType::kF32, {6});
  const NodeId repeated = builder.broadcast(bias, {batch * positions, 6});
  EXPECT_EQ(builder.reshape(repeated, {batch, positions, 6}),
            builder.broadcast(bias, {batch, positions, 6}));
  // Other axes than those that were joined: whether they carry is not known.
  const NodeId other = builder.reshape(builder.permute(x, {1, 0, 2}), {batch, positions, 6});
  EXPECT_NE(builder.node(other).operands[0], x);
  ASSERT_TRUE(builder.finish({heads, other}));
}

TEST(View, ReadsOutsideTheOperandAreRefused) {
  const auto refused = [](auto make) {
    GraphBuilder builder;
    const NodeId x = builder.input(DType::kF32, {4, 6});
    make(builder, x);
    return !builder.ok() && builder.error()->code == Code::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](GraphBuilder& b, NodeId x) { b.slice(x, 1, 3, 4); }));
  EXPECT_TRUE(refused([](GraphBuilder& b, NodeId x) { b.slice(x, 1, -1, 2); }));
  EXPECT_TRUE(refused([](GraphBuilder& b, NodeId x) { b.slice(x, 0, 3, 3, -2); }));
  EXPECT_TRUE(refused([](GraphBuilder& b, NodeId x) { b.view(x, {25}, {1}, 0); }));
  EXPECT_TRUE(refused([](GraphBuilder& b, NodeId x) { b.view(x, {2}, {-1}, 0); }));
  EXPECT_TRUE(refused([](GraphBuilder& b, NodeId x) { b.view(x, {2}, {INT64_MAX}, 0); }));
  EXPECT_TRUE(refused([](GraphBuilder& b, NodeId x) { b.reshape(x, {5, 5}); }));
  EXPECT_TRUE(refused([](GraphBuilder& b, NodeId x) { b.permute(x, {0, 0}); }));
}

}  // namespace
}  // namespace kiln
