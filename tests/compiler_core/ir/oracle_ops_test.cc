// Convolution, scatter, argsort, Philox and products: by hand, against another way to compute the
// same, and against published vectors.
#include "compiler_core/ir/oracle_ops.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/interpreter.h"

namespace kiln {
namespace {

constexpr double kQuietNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
using V = std::vector<double>;

Tensor tensor_of(DType dtype, std::vector<int64_t> sizes, const V& values) {
  Tensor result(dtype, std::move(sizes));
  for (size_t i = 0; i < values.size(); ++i) {
    if (is_float(dtype))
      result.set(static_cast<int64_t>(i), values[i]);
    else
      result.set_int(static_cast<int64_t>(i), static_cast<int64_t>(values[i]));
  }
  return result;
}

// The only output of what `make` builds on these inputs.
template <class Make>
V evaluate(const std::vector<const Tensor*>& inputs, Make make) {
  GraphBuilder b;
  std::vector<NodeId> ids;
  for (const Tensor* input : inputs)
    ids.push_back(b.input(input->dtype(), {input->sizes().begin(), input->sizes().end()}));
  auto graph = b.finish({make(b, ids)});
  EXPECT_TRUE(graph) << graph.error().message;
  const auto outputs = interpret(*graph, inputs);
  EXPECT_TRUE(outputs) << outputs.error().message;
  V values;
  for (int64_t i = 0; i < (*outputs)[0].numel(); ++i)
    values.push_back(is_float((*outputs)[0].dtype())
                         ? (*outputs)[0].get(i)
                         : static_cast<double>((*outputs)[0].get_int(i)));
  return values;
}

using Ids = std::vector<NodeId>;

V product(const Tensor& x, std::vector<int> axes) {
  return evaluate(
      {&x}, [&](GraphBuilder& b, const Ids& in) { return b.reduce(Op::kReduceProd, in[0], axes); });
}

TEST(ReduceProd, MultipliesAndOfNothingGivesOne) {
  EXPECT_EQ(product(tensor_of(DType::kF32, {2, 3}, {1, 2, 3, 4, 5, -6}), {1}), (V{6, -120}));
  EXPECT_EQ(product(tensor_of(DType::kF32, {2, 0}, {}), {1}), (V{1, 1}));
  EXPECT_EQ(product(tensor_of(DType::kI64, {0}, {}), {0}), (V{1}));
  EXPECT_TRUE(std::isnan(product(tensor_of(DType::kF32, {2}, {0, kInfinity}), {0})[0]));
}

TEST(ReduceProd, WrapsIntegersAndKeepsTheComputeTypeOfHalves) {
  EXPECT_EQ(product(tensor_of(DType::kI8, {3}, {100, 3, -1}), {0}), (V{-44}));
  EXPECT_EQ(product(tensor_of(DType::kU8, {2}, {200, 2}), {0}), (V{144}));
  // 3^11 is no bf16, but 3^11 / 3^11 is 1 where it is not rounded on the way.
  const double third = 1.0 / 3;
  EXPECT_NE(product(tensor_of(DType::kBF16, {2}, {third, 3}), {0})[0], 0);
  EXPECT_EQ(product(tensor_of(DType::kF16, {3}, {60000, 2, 0.5}), {0}), (V{60000}));
}

TEST(Convolution, ByHand) {
  const Tensor x = tensor_of(DType::kF32, {1, 1, 5}, {1, 2, 3, 4, 5});
  const Tensor w = tensor_of(DType::kF32, {1, 1, 2}, {1, 10});
  const auto run = [&](ConvolutionAttr attr) {
    return evaluate({&x, &w}, [&](GraphBuilder& b, const Ids& in) {
      return b.convolution(in[0], in[1], attr);
    });
  };
  EXPECT_EQ(run({{1}, {1}, {0}, {0}, 1}), (V{21, 32, 43, 54}));
  EXPECT_EQ(run({{2}, {1}, {1}, {0}, 1}), (V{10, 32, 54}));
  EXPECT_EQ(run({{1}, {3}, {0}, {1}, 1}), (V{41, 52, 3}));
}

TEST(Convolution, GroupsReadTheirOwnChannels) {
  const Tensor x = tensor_of(DType::kF32, {1, 2, 2}, {1, 2, 3, 4});
  const Tensor w = tensor_of(DType::kF32, {4, 1, 1}, {1, 10, 100, 1000});
  EXPECT_EQ(evaluate({&x, &w},
                     [](GraphBuilder& b, const Ids& in) {
                       return b.convolution(in[0], in[1], {{1}, {1}, {0}, {0}, 2});
                     }),
            (V{1, 2, 10, 20, 300, 400, 3000, 4000}));
}

// The same as a matmul: every window of the padded operand as one row.
NodeId as_matmul(GraphBuilder& b, NodeId x, NodeId w, const ConvolutionAttr& attr) {
  const size_t spatial = attr.stride.size();
  const Shape weight = b.shape(w);
  std::vector<Dim> low(2, Dim(0)), high(2, Dim(0));
  low.insert(low.end(), attr.low.begin(), attr.low.end());
  high.insert(high.end(), attr.high.begin(), attr.high.end());
  const NodeId padded = b.pad(x, low, high, constant_bits(b.dtype(x), 0));
  const std::vector<Dim> strides = contiguous_strides(b.shape(padded));
  const int64_t group = weight[1].constant(), outputs = weight[0].constant() / attr.groups;
  std::vector<NodeId> groups;
  for (int64_t g = 0; g < attr.groups; ++g) {
    Shape windows = {b.shape(x)[0]};
    std::vector<Dim> steps = {strides[0]};
    Dim places = b.shape(x)[0];
    Shape result = {b.shape(x)[0]};
    for (size_t i = 0; i < spatial; ++i) {
      const int64_t reach = attr.dilation[i] * (weight[i + 2].constant() - 1) + 1;
      const Dim size = (b.shape(padded)[i + 2].constant() - reach) / attr.stride[i] + 1;
      windows.push_back(size);
      result.push_back(size);
      steps.push_back(strides[i + 2] * Dim(attr.stride[i]));
      places = places * size;
    }
    Dim taps = group;
    windows.push_back(group);
    steps.push_back(strides[1]);
    for (size_t i = 0; i < spatial; ++i) {
      windows.push_back(weight[i + 2]);
      steps.push_back(strides[i + 2] * Dim(attr.dilation[i]));
      taps = taps * weight[i + 2];
    }
    const NodeId rows =
        b.reshape(b.view(padded, windows, steps, strides[1] * Dim(g * group)), {places, taps});
    const NodeId columns =
        b.permute(b.reshape(b.slice(w, 0, g * outputs, outputs), {Dim(outputs), taps}), {1, 0});
    result.push_back(outputs);
    const NodeId last = b.reshape(b.matmul(rows, columns), result);
    std::vector<int> order = {0, static_cast<int>(spatial) + 1};
    for (size_t i = 0; i < spatial; ++i) order.push_back(static_cast<int>(i) + 1);
    groups.push_back(b.permute(last, order));
  }
  return b.concat(groups, 1);
}

TEST(Convolution, IsAMatmulOverWindows) {
  std::mt19937 random(3);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 60; ++round) {
    const auto spatial = static_cast<size_t>(1 + round % 3);
    ConvolutionAttr attr;
    attr.groups = pick(1, 3);
    const int64_t channels = pick(1, 2), outputs = pick(1, 2) * attr.groups;
    std::vector<int64_t> x_sizes = {pick(1, 2), channels * attr.groups},
                         w_sizes = {outputs, channels};
    for (size_t i = 0; i < spatial; ++i) {
      attr.stride.push_back(pick(1, 3));
      attr.dilation.push_back(pick(1, 2));
      attr.low.push_back(pick(0, 2));
      attr.high.push_back(pick(0, 2));
      w_sizes.push_back(pick(1, 3));
      x_sizes.push_back(attr.dilation[i] * (w_sizes.back() - 1) + pick(1, 4));
    }
    const DType dtype = round % 4 == 3 ? DType::kI32 : DType::kF32;
    Tensor x(dtype, x_sizes), w(dtype, w_sizes);
    for (Tensor* t : {&x, &w})
      for (int64_t i = 0; i < t->numel(); ++i)
        is_float(dtype) ? t->set(i, static_cast<double>(pick(-4, 4))) : t->set_int(i, pick(-4, 4));
    const V direct = evaluate({&x, &w}, [&](GraphBuilder& b, const Ids& in) {
      return b.convolution(in[0], in[1], attr);
    });
    const V windows = evaluate(
        {&x, &w}, [&](GraphBuilder& b, const Ids& in) { return as_matmul(b, in[0], in[1], attr); });
    EXPECT_EQ(direct, windows) << "round " << round;
  }
}

// Integers go through the obvious loops: the same values as doubles must give the same sums.
V small_integers(int64_t count, std::mt19937& random) {
  V values(static_cast<size_t>(count));
  for (double& v : values) v = static_cast<double>(static_cast<int>(random() % 9) - 4);
  return values;
}

TEST(Products, ByBlocksAreThoseOfTheObviousLoops) {
  std::mt19937 random(3);
  for (const auto& [batches, m, n, k] : {std::array<int64_t, 4>{1, 1, 1, 1},
                                         {2, 7, 9, 3},
                                         {3, 5, 1, 300},
                                         {1, 193, 385, 257},
                                         {2, 64, 0, 5},
                                         {2, 3, 4, 0},
                                         {1, 400, 800, 300}}) {
    const V a = small_integers(batches * m * k, random),
            b = small_integers(batches * k * n, random);
    const auto product = [&, batches = batches, m = m, n = n, k = k](DType dtype) {
      const Tensor left = tensor_of(dtype, {batches, m, k}, a),
                   right = tensor_of(dtype, {batches, k, n}, b);
      return evaluate({&left, &right}, [](GraphBuilder& builder, const std::vector<NodeId>& in) {
        return builder.matmul(in[0], in[1]);
      });
    };
    EXPECT_EQ(product(DType::kF64), product(DType::kI64)) << m << ' ' << n << ' ' << k;
  }
}

TEST(Convolution, ByBlocksIsThatOfTheObviousLoops) {
  std::mt19937 random(4);
  for (int round = 0; round < 40; ++round) {
    const auto pick = [&](int64_t least, int64_t most) {
      return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
    };
    const int64_t groups = pick(1, 3), channels = pick(1, 5), outputs = pick(1, 14);
    const std::vector<int64_t> window = {pick(1, 3), pick(1, 3)};
    ConvolutionAttr attr{{pick(1, 3), pick(1, 2)}, {pick(1, 2), pick(1, 3)}, {}, {}, groups};
    attr.low = {pick(0, 4), pick(0, 4)};
    attr.high = {pick(0, 4), pick(0, 4)};
    const std::vector<int64_t> in = {pick(1, 3), groups * channels, pick(6, 30), pick(8, 30)};
    const std::vector<int64_t> weight = {groups * outputs, channels, window[0], window[1]};
    const V x = small_integers(oracle::count(in), random);
    const V w = small_integers(oracle::count(weight), random);
    const auto result = [&](DType dtype) {
      const Tensor image = tensor_of(dtype, in, x), taps = tensor_of(dtype, weight, w);
      return evaluate({&image, &taps}, [&](GraphBuilder& b, const std::vector<NodeId>& ids) {
        return b.convolution(ids[0], ids[1], attr);
      });
    };
    EXPECT_EQ(result(DType::kF64), result(DType::kI64)) << "round " << round;
  }
}

TEST(Convolution, ZerosBesideTheImageMeetNoInfinity) {
  const Tensor image = tensor_of(DType::kF32, {1, 1, 1, 1}, {2});
  const Tensor taps = tensor_of(DType::kF32, {1, 1, 1, 3}, {kInfinity, 3, kQuietNaN});
  const V result = evaluate({&image, &taps}, [&](GraphBuilder& b, const std::vector<NodeId>& ids) {
    return b.convolution(ids[0], ids[1], {{1, 1}, {1, 1}, {0, 1}, {0, 1}, 1});
  });
  EXPECT_EQ(result, V{6});
}

TEST(Convolution, WhatDoesNotFitIsRefused) {
  const auto refused = [](Shape x, Shape w, ConvolutionAttr attr) {
    GraphBuilder b;
    b.convolution(b.input(DType::kF32, std::move(x)), b.input(DType::kF32, std::move(w)), attr);
    return !b.ok();
  };
  const ConvolutionAttr plain{{1}, {1}, {0}, {0}, 1};
  EXPECT_FALSE(refused({1, 2, 5}, {3, 2, 2}, plain));
  EXPECT_TRUE(refused({1, 3, 5}, {3, 2, 2}, plain));
  EXPECT_TRUE(refused({1, 2, 1}, {3, 2, 2}, plain));
  EXPECT_TRUE(refused({1, 2, 5, 5}, {3, 2, 2, 2}, plain));
  EXPECT_TRUE(refused({1, 2, 5}, {3, 2, 2}, {{0}, {1}, {0}, {0}, 1}));
  EXPECT_TRUE(refused({1, 2, 5}, {3, 2, 2}, {{1}, {1}, {-1}, {0}, 1}));
  EXPECT_TRUE(refused({1, 2, 5}, {3, 2, 2}, {{1}, {1}, {0}, {0}, 0}));
  EXPECT_TRUE(refused({1, 4, 5}, {3, 2, 2}, {{1}, {1}, {0}, {0}, 2}));
  EXPECT_TRUE(refused({1, 2, 5}, {3, 2, 2}, {{1}, {1, 1}, {0}, {0}, 1}));
}

V scattered(Combine combine, DType dtype, const V& x, const V& index, const V& updates) {
  const auto count = static_cast<int64_t>(index.size());
  const Tensor to = tensor_of(dtype, {static_cast<int64_t>(x.size())}, x);
  const Tensor at = tensor_of(DType::kI64, {count}, index),
               from = tensor_of(dtype, {count}, updates);
  return evaluate({&to, &at, &from}, [&](GraphBuilder& b, const Ids& in) {
    return b.scatter(in[0], in[1], in[2], combine);
  });
}

TEST(Scatter, CombinesEachWay) {
  const V x = {1, 2, 3}, index = {2, 0, 2}, updates = {10, 20, 5};
  EXPECT_EQ(scattered(Combine::kSet, DType::kF32, x, index, updates), (V{20, 2, 5}));
  EXPECT_EQ(scattered(Combine::kAdd, DType::kF32, x, index, updates), (V{21, 2, 18}));
  EXPECT_EQ(scattered(Combine::kMul, DType::kF32, x, index, updates), (V{20, 2, 150}));
  EXPECT_EQ(scattered(Combine::kMax, DType::kF32, x, index, updates), (V{20, 2, 10}));
  EXPECT_EQ(scattered(Combine::kMin, DType::kF32, x, index, updates), (V{1, 2, 3}));
  EXPECT_EQ(scattered(Combine::kAdd, DType::kI8, {100, 0, 0}, {0}, {100}), (V{-56, 0, 0}));
  EXPECT_TRUE(std::isnan(scattered(Combine::kMax, DType::kF32, {1}, {0}, {kQuietNaN})[0]));
}

TEST(Scatter, NegativeIndicesCountFromTheEndAndOthersAreDropped) {
  EXPECT_EQ(scattered(Combine::kSet, DType::kI32, {1, 2, 3}, {-1, 3, -4, -3}, {7, 8, 9, 6}),
            (V{6, 2, 7}));
}

TEST(Scatter, RoundsOnceInTheEnd) {
  // 1 + 2^-9 is 1 in bf16, but two of them are not.
  EXPECT_EQ(scattered(Combine::kAdd, DType::kBF16, {1}, {0, 0}, {0x1p-8, 0x1p-8}), (V{1 + 0x1p-7}));
}

TEST(Scatter, RowsOfAnyRankAndAnIndexOfAnyRank) {
  const Tensor x = tensor_of(DType::kF32, {3, 2}, {0, 0, 0, 0, 0, 0});
  const Tensor index = tensor_of(DType::kI64, {1, 2}, {2, 0});
  const Tensor updates = tensor_of(DType::kF32, {1, 2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(evaluate({&x, &index, &updates},
                     [](GraphBuilder& b, const Ids& in) {
                       return b.scatter(in[0], in[1], in[2], Combine::kAdd);
                     }),
            (V{3, 4, 0, 0, 1, 2}));
}

V sorted_positions(const Tensor& x, bool descending) {
  return evaluate({&x},
                  [&](GraphBuilder& b, const Ids& in) { return b.argsort(in[0], descending); });
}

TEST(Argsort, IsStableBothWays) {
  const Tensor x = tensor_of(DType::kI32, {2, 4}, {3, 1, 3, 1, 0, 0, 0, -1});
  EXPECT_EQ(sorted_positions(x, false), (V{1, 3, 0, 2, 3, 0, 1, 2}));
  EXPECT_EQ(sorted_positions(x, true), (V{0, 2, 1, 3, 0, 1, 2, 3}));
}

TEST(Argsort, NaNIsGreatestAndZerosAreEqual) {
  const Tensor x =
      tensor_of(DType::kF32, {6}, {kQuietNaN, 0.0, -0.0, kInfinity, kQuietNaN, -kInfinity});
  EXPECT_EQ(sorted_positions(x, false), (V{5, 1, 2, 3, 0, 4}));
  EXPECT_EQ(sorted_positions(x, true), (V{0, 4, 3, 1, 2, 5}));
}

// Philox4x32-10 as Random123 writes it: counter and key in words.
std::array<uint32_t, 4> philox10(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    const auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
    c = {high(b) ^ c[1] ^ k[0], static_cast<uint32_t>(b), high(a) ^ c[3] ^ k[1],
         static_cast<uint32_t>(a)};
    k = {k[0] + 0x9E3779B9, k[1] + 0xBB67AE85};
  }
  return c;
}

V drawn(int64_t seed, Shape shape, int64_t stream) {
  Tensor key(DType::kI64, {});
  key.set_int(0, seed);
  return evaluate({&key}, [&](GraphBuilder& b, const Ids& in) {
    return b.philox(in[0], std::move(shape), stream);
  });
}

// kat_vectors of Random123.
TEST(Philox, KnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox10({}, {}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox10({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  EXPECT_EQ(drawn(0, {4}, 0), (V{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

TEST(Philox, TheElementSaysTheCounterSeedTheKeyAndStreamTheRest) {
  const int64_t seed = -0x1234'5678'9abc'def0, stream = 0x5'0000'0007;
  const V values = drawn(seed, {3, 5}, stream);
  for (uint32_t p = 0; p < 15; ++p) {
    const auto words = philox10({p / 4, 0, 7, 5},
                                {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    EXPECT_EQ(values[p], words[p % 4]) << p;
  }
  EXPECT_NE(drawn(seed, {3, 5}, stream + 1), values);
  EXPECT_NE(drawn(seed + 1, {3, 5}, stream), values);
}

}  // namespace
}  // namespace kiln
