#include "compiler_core/plan/alternatives.h"

#include <gtest/gtest.h>

#include <set>

#include "compiler_core/ir/builder.h"
#include "compiler_core/passes/normalise.h"
#include "tests/compiler_core/ir/four_bits.h"
#include "tests/compiler_core/passes/random_graph.h"
#include "tests/compiler_core/plan/run_plan.h"

namespace kiln {
namespace {

Graph canonical(GraphBuilder& b, const std::vector<NodeId>& outputs) {
  auto graph = b.finish(outputs);
  EXPECT_TRUE(graph) << graph.error().message;
  return normalise(*graph)->graph;
}

// softmax(q kT) v over `rows` queries and `keys` keys of two heads, or more, of which `sharing` each have the
// same keys and values.
Graph attention(int64_t rows, int64_t keys, int64_t heads = 2, int64_t sharing = 1) {
  GraphBuilder b;
  const NodeId q = b.input(DType::kF32, {heads, rows, 16});
  const auto tokens = [&] {
    const NodeId once = b.input(DType::kF32, {heads / sharing, 1, keys, 16});
    return b.reshape(b.broadcast(once, {heads / sharing, sharing, keys, 16}), {heads, keys, 16});
  };
  const NodeId k = tokens(), v = tokens();
  const NodeId scores = b.matmul(q, b.permute(k, {0, 2, 1}));
  const auto spread = [&](NodeId id) {
    return b.broadcast(b.reshape(id, {heads, rows, 1}), {heads, rows, keys});
  };
  const NodeId most = spread(b.reduce(Op::kReduceMax, scores, {2}));
  const NodeId e = b.unary(Op::kExp, b.binary(Op::kSub, scores, most));
  const NodeId sum = spread(b.reduce(Op::kReduceSum, e, {2}));
  return canonical(b, {b.matmul(b.binary(Op::kDiv, e, sum), v)});
}

// x + y, which a reduction along the rows and a product both need.
Graph shared_sum(int64_t rows) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {rows, 64}), y = b.input(DType::kF32, {rows, 64});
  const NodeId sum = b.binary(Op::kAdd, b.binary(Op::kMul, x, y), y);
  const NodeId column = b.reduce(Op::kReduceSum, sum, {0});
  const NodeId row = b.reduce(Op::kReduceMax, b.binary(Op::kMul, sum, x), {1});
  return canonical(b, {column, row});
}

std::vector<std::string> names_of(const Graph& graph) {
  const auto all = plan_alternatives(graph);
  EXPECT_TRUE(all) << all.error().message;
  std::vector<std::string> names;
  for (const PlanAlternative& one : *all) names.push_back(one.name);
  return names;
}

// What _scaled_mm of [rows, 64] and the transpose of [48, 64] becomes, twice of one x.
Graph products_of_8_bits(int64_t rows) {
  GraphBuilder b;
  const auto widened = [&](NodeId x) { return b.cast(x, DType::kBF16); };
  const NodeId x = widened(b.cast(b.input(DType::kF32, {rows, 64}), DType::kF8E4M3));
  std::vector<NodeId> outputs;
  for (int i = 0; i < 2; ++i) {
    const NodeId w = b.permute(b.input(DType::kF8E5M2, {48, 64}), {1, 0});
    const NodeId scale = b.broadcast(b.input(DType::kF32, {rows, 1}), Shape{rows, 48});
    outputs.push_back(b.cast(b.binary(Op::kMul, b.matmul(x, widened(w)), scale), DType::kBF16));
  }
  return canonical(b, outputs);
}

using Names = std::vector<std::string>;

TEST(PlanAlternatives, WhatRulesDecideHasOne) {
  EXPECT_EQ(names_of(attention(16, 16)), Names{"by rules"});
  EXPECT_EQ(names_of(attention(128, 512)), Names{"by rules"}) << "many rows share what is read";
  EXPECT_EQ(names_of(shared_sum(8)), Names{"by rules"}) << "small: it stays in the caches";
}

TEST(PlanAlternatives, FewRowsOfManyKeysMayBeThreeKernels) {
  const auto all = plan_alternatives(attention(16, 512));
  ASSERT_TRUE(all) << all.error().message;
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ((*all)[0].plan.launches.size(), 1u);
  EXPECT_EQ((*all)[1].name, "attention in three kernels");
  EXPECT_FALSE((*all)[1].rules.attention);
  EXPECT_EQ((*all)[1].plan.launches.size(), 3u);
}

// A step of decoding: where kernels are written for it and heads are as many as blocks are wanted.
TEST(PlanAlternatives, OneRowOfManyKeysMayBeOneKernel) {
  const auto launches = [](const Graph& graph, OnePass one_pass) {
    PartitionRules rules;
    rules.one_pass = one_pass;
    const auto all = plan_alternatives(graph, rules);
    std::vector<size_t> counts;
    if (all)
      for (const PlanAlternative& one : *all) counts.push_back(one.plan.launches.size());
    return counts;
  };
  using Counts = std::vector<size_t>;
  EXPECT_EQ(launches(attention(1, 512, 128), OnePass::kOneRow), (Counts{1, 3}));
  EXPECT_EQ(launches(attention(1, 512, 128), OnePass::kManyRows).front(), 3u);
  EXPECT_EQ(launches(attention(1, 512, 127), OnePass::kOneRow).front(), 3u);
  EXPECT_EQ(launches(attention(2, 512, 128), OnePass::kOneRow).front(), 3u);
  EXPECT_EQ(launches(attention(1, 512, 8), OnePass::kOneRowInClusters), (Counts{1, 3}));
  EXPECT_EQ(launches(attention(1, 512, 7), OnePass::kOneRowInClusters).front(), 3u);
  EXPECT_EQ(launches(attention(1, 512, 32, 4), OnePass::kOneRowInClusters).front(), 1u);
  EXPECT_GT(launches(attention(1, 512, 32, 8), OnePass::kOneRowInClusters).front(), 1u);
}

TEST(PlanAlternatives, ALargeSharedValueMayBeComputedAgain) {
  const auto all = plan_alternatives(shared_sum(8192));
  ASSERT_TRUE(all) << all.error().message;
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ((*all)[1].name, "shared values computed again");
  EXPECT_NE((*all)[0].plan.arena_bytes, Dim(0));
  EXPECT_EQ((*all)[1].plan.arena_bytes, Dim(0));
}

// A mean of neighbours that two kernels need: a quarter of what it is made of, and never made twice.
TEST(PlanAlternatives, APooledValueIsNotComputedAgain) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {16384, 4 * 64}), y = b.input(DType::kF32, {16384, 64});
  const auto neighbour = [&](int64_t i) { return b.slice(x, 1, Dim(i * 64), Dim(64)); };
  const NodeId sum = b.binary(Op::kAdd, b.binary(Op::kAdd, neighbour(0), neighbour(1)),
                              b.binary(Op::kAdd, neighbour(2), neighbour(3)));
  const NodeId column = b.reduce(Op::kReduceSum, sum, {0});
  const NodeId row = b.reduce(Op::kReduceMax, b.binary(Op::kMul, sum, y), {1});
  EXPECT_EQ(names_of(canonical(b, {column, row})), Names{"by rules"});
}

// Stored as they were widened, which all kernels of products read; or as they are.
TEST(PlanAlternatives, OperandsOf8BitsMayBeReadAsTheyAre) {
  const auto all = plan_alternatives(products_of_8_bits(40));
  ASSERT_TRUE(all) << all.error().message;
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ((*all)[1].name, "operands of 8 bits");
  EXPECT_FALSE((*all)[1].rules.widen_stored);
  const auto operands = [](const Plan& plan) {
    std::vector<DType> dtypes;
    for (const Launch& launch : plan.launches) {
      const Workload& kernel = plan.kernels[static_cast<size_t>(launch.kernel)];
      if (kernel.family != Family::kMatmul) continue;
      for (const int argument : launch.args)
        dtypes.push_back(plan.buffers[static_cast<size_t>(argument)].spec.dtype);
    }
    return dtypes;
  };
  using enum DType;
  const std::vector<DType> as_they_are = {kF8E4M3, kF8E5M2, kF32, kBF16,
                                          kF8E4M3, kF8E5M2, kF32, kBF16};
  EXPECT_EQ(operands((*all)[1].plan), as_they_are);
  EXPECT_EQ((*all)[1].plan.launches.size(), 3u) << "x is quantised once";
  EXPECT_GT((*all)[0].plan.launches.size(), 3u);
  for (const DType dtype : operands((*all)[0].plan)) EXPECT_FALSE(is_f8(dtype));
}

// A product that nothing reads as it is stored stays as it is, beside one that may be.
TEST(PlanAlternatives, ProductsOfWhichOneOperandHas8BitsAreLeftAlone) {
  const auto graph = [](DType weight, int64_t depth) {
    GraphBuilder b;
    const NodeId x = b.input(DType::kBF16, {40, depth});
    const NodeId w = b.cast(b.permute(b.input(weight, {48, depth}), {1, 0}), DType::kBF16);
    const NodeId q = b.cast(b.input(DType::kF8E4M3, {40, depth}), DType::kBF16);
    const NodeId v = b.cast(b.permute(b.input(DType::kF8E4M3, {48, depth}), {1, 0}), DType::kBF16);
    return canonical(b, {b.matmul(x, w), b.matmul(q, v)});
  };
  const auto all = plan_alternatives(graph(DType::kF8E5M2, 64));
  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), 2u);
  for (const Workload& kernel : (*all)[1].plan.kernels) {
    if (kernel.family != Family::kMatmul) continue;
    const auto inputs = kernel.graph.inputs();
    EXPECT_EQ(size_of(kernel.graph.node(inputs[0]).dtype),
              size_of(kernel.graph.node(inputs[1]).dtype));
  }
  EXPECT_EQ(names_of(graph(DType::kI8, 68)), Names{"by rules"}) << "lines begin anywhere";
}

// x times weights of 8 bits: (q - zero) * scale, in groups of the depth, as
// quantized_decomposed.dequantize_per_channel_group has it. `shared`: two products read them.
Graph product_with_weights(int64_t group, bool shared = false) {
  constexpr int64_t kColumns = 48, kDepth = 256;
  GraphBuilder b;
  const Shape rows = {kColumns * kDepth / group, group};
  const auto factor = [&](DType dtype) {
    const NodeId x = b.cast(b.input(dtype, {kColumns, kDepth / group}), DType::kF32);
    return b.broadcast(b.reshape(x, {rows[0], 1}), Shape(rows));
  };
  const NodeId q = b.cast(b.reshape(b.input(DType::kI8, {kColumns, kDepth}), rows), DType::kF32);
  const NodeId numbers =
      b.binary(Op::kMul, b.binary(Op::kSub, q, factor(DType::kI64)), factor(DType::kBF16));
  const NodeId w = b.reshape(b.cast(numbers, DType::kBF16), {kColumns, kDepth});
  std::vector<NodeId> outputs;
  for (int i = 0; i < (shared ? 2 : 1); ++i) {
    const NodeId x = b.input(DType::kBF16, {5 + i, kDepth});
    outputs.push_back(b.cast(b.matmul(x, b.permute(w, {1, 0})), DType::kBF16));
  }
  return canonical(b, outputs);
}

// The arithmetic is part of the product: its kernel reads bytes, and nothing else is launched.
TEST(PlanAlternatives, WeightsAreDequantisedByTheProductThatReadsThem) {
  for (const int64_t group : {32, 128, 256})
    for (const bool shared : {false, true}) {
      const auto all = plan_alternatives(product_with_weights(group, shared));
      ASSERT_TRUE(all);
      ASSERT_EQ(all->size(), 2u);
      const Plan& narrow = (*all)[1].plan;
      EXPECT_EQ(narrow.launches.size(), shared ? 2u : 1u) << group;
      EXPECT_EQ(narrow.arena_bytes, Dim(0));
      for (const Launch& launch : narrow.launches) {
        std::multiset<DType> dtypes;
        for (const int argument : launch.args)
          dtypes.insert(narrow.buffers[static_cast<size_t>(argument)].spec.dtype);
        using enum DType;
        EXPECT_EQ(dtypes, (std::multiset{kI8, kI64, kBF16, kBF16, kBF16}));
      }
      EXPECT_GT((*all)[0].plan.launches.size(), narrow.launches.size());
    }
  EXPECT_EQ(names_of(product_with_weights(16)), Names{"by rules"}) << "groups of few";
}

// Weights of 4 bits, two in a byte, in one of the ways in which models take them apart.
struct FourBits {
  bool high_first = false, zero_in_i8 = false, addend = false, halves_of_rows = false;
  int64_t depth = 256, byte_stride = 1;
};
Graph product_with_four_bits(const FourBits& form) {
  constexpr int64_t kColumns = 48, kGroup = 32;
  GraphBuilder b;
  const int64_t depth = form.depth, stride = form.byte_stride;
  const NodeId given = b.input(DType::kU8, {kColumns, depth / 2 * stride});
  const NodeId bytes = b.slice(given, 1, 0, depth / 2, stride);
  NodeId q = form.halves_of_rows ? b.concat(testing::halves_of(b, bytes), 1)
                                 : testing::taken_apart(b, bytes, form.high_first);
  if (form.zero_in_i8) {
    q = b.cast(q, DType::kI8);
    q = b.binary(Op::kSub, q, testing::constant_like(b, q, 8));
  }
  const Shape groups = {kColumns, depth / kGroup, kGroup};
  const auto factor = [&](DType dtype) {
    const NodeId x = b.cast(b.input(dtype, {kColumns, depth / kGroup, 1}), DType::kF32);
    return b.broadcast(x, Shape(groups));
  };
  NodeId x = b.cast(b.cast(b.reshape(q, groups), DType::kBF16), DType::kF32);
  if (!form.zero_in_i8) x = b.binary(Op::kSub, x, testing::constant_like(b, x, 8));
  x = b.binary(Op::kMul, x, factor(DType::kBF16));
  if (form.addend) x = b.binary(Op::kAdd, x, factor(DType::kBF16));
  const NodeId w = b.reshape(b.cast(x, DType::kBF16), {kColumns, depth});
  const NodeId y = b.matmul(b.input(DType::kBF16, {5, depth}), b.permute(w, {1, 0}));
  return canonical(b, {b.cast(y, DType::kBF16)});
}

TEST(PlanAlternatives, WeightsOf4BitsAreTakenApartByTheProductThatReadsThem) {
  for (const bool high_first : {false, true})
    for (const bool zero_in_i8 : {false, true})
      for (const bool addend : {false, true}) {
        const FourBits form{.high_first = high_first, .zero_in_i8 = zero_in_i8, .addend = addend};
        const auto all = plan_alternatives(product_with_four_bits(form));
        ASSERT_TRUE(all);
        ASSERT_EQ(all->size(), 2u);
        const Plan& narrow = (*all)[1].plan;
        EXPECT_EQ(narrow.launches.size(), 1u);
        EXPECT_EQ(narrow.arena_bytes, Dim(0));
        EXPECT_EQ((*all)[0].plan.launches.size(), 2u);
        const Graph graph = product_with_four_bits(form);
        const auto inputs = testing::random_inputs(graph, 1);
        const auto expected = testing::evaluate(graph, testing::in_order(inputs));
        const auto actual = testing::run_plan(narrow, testing::in_order(inputs));
        testing::expect_equal(expected[0], actual[0], 0.02);
      }
  const auto launches = [](const FourBits& form) {
    const auto all = plan_alternatives(product_with_four_bits(form));
    return all->back().plan.launches.size();
  };
  EXPECT_EQ(launches({.halves_of_rows = true}), 2u) << "neighbours in other bytes";
  EXPECT_EQ(launches({.byte_stride = 2}), 2u) << "bytes that others lie between";
  EXPECT_EQ(launches({.depth = 96}), 1u);
}

// Weights of ATen's words, of which `swapped` has two places in another order than these have.
Graph product_with_words(int64_t of_lane, bool swapped = false) {
  constexpr int64_t kColumns = 48, kDepth = 256, kGroup = 32;
  GraphBuilder b;
  const Shape groups = {kColumns, kDepth / kGroup, kGroup};
  const NodeId words = b.input(DType::kI32, {kColumns / 8, kDepth / (32 * of_lane), 32, of_lane});
  NodeId q = testing::words_apart(b, words);
  if (swapped)
    q = b.reshape(b.permute(b.reshape(q, {kColumns, kDepth / 4, 2, 2}), {0, 1, 3, 2}),
                  {kColumns, kDepth});
  const auto factor = [&](int64_t which) {
    const NodeId both = b.input(DType::kBF16, {kDepth / kGroup, kColumns, 2});
    const NodeId one = b.reshape(b.slice(both, 2, which, 1), {kDepth / kGroup, kColumns});
    const NodeId wide = b.cast(b.permute(one, {1, 0}), DType::kF32);
    return b.broadcast(b.reshape(wide, {kColumns, kDepth / kGroup, 1}), Shape(groups));
  };
  NodeId x = b.reshape(b.cast(q, DType::kF32), groups);
  x = b.binary(Op::kSub, x, testing::constant_like(b, x, 8));
  x = b.binary(Op::kAdd, b.binary(Op::kMul, x, factor(0)), factor(1));
  const NodeId w = b.reshape(b.cast(x, DType::kBF16), {kColumns, kDepth});
  const NodeId y = b.matmul(b.input(DType::kBF16, {5, kDepth}), b.permute(w, {1, 0}));
  return canonical(b, {b.cast(y, DType::kBF16)});
}

TEST(PlanAlternatives, WordsOfATenAreTakenApartByTheProductThatReadsThem) {
  for (const int64_t of_lane : {1, 2, 4}) {
    const Graph graph = product_with_words(of_lane);
    const auto all = plan_alternatives(graph);
    ASSERT_TRUE(all);
    ASSERT_EQ(all->size(), 2u);
    const Plan& narrow = (*all)[1].plan;
    ASSERT_EQ(narrow.launches.size(), 1u);
    EXPECT_EQ(narrow.arena_bytes, Dim(0));
    const auto inputs = testing::random_inputs(graph, 1);
    const auto expected = testing::evaluate(graph, testing::in_order(inputs));
    const auto actual = testing::run_plan(narrow, testing::in_order(inputs));
    testing::expect_equal(expected[0], actual[0], 0.02);
  }
  const auto other = plan_alternatives(product_with_words(2, true));
  ASSERT_EQ(other->size(), 2u);
  EXPECT_EQ((*other)[1].plan.launches.size(), 2u) << "taken apart by a kernel before";
}

TEST(PlanAlternatives, EstimatesTellApartOperandsOf8BitsAlone) {
  const auto names = [](const Graph& graph) {
    const auto all = plan_alternatives(graph, {}, ChosenBy::kEstimates);
    Names found;
    for (const PlanAlternative& one : *all) found.push_back(one.name);
    return found;
  };
  EXPECT_EQ(names(attention(16, 512)), Names{"by rules"});
  EXPECT_EQ(names(shared_sum(8192)), Names{"by rules"});
  EXPECT_EQ(names(product_with_words(1)), (Names{"by rules", "operands of 8 bits"}));
}

// Kernels read what is contiguous along the depth, with scales of lines that memory has.
TEST(PlanAlternatives, WeightsThatNoKernelReadsAreStoredAsTheyAreMultiplied) {
  const auto graph = [](bool turned, bool along_depth, bool computed, DType half) {
    GraphBuilder b;
    const Shape shape = turned ? Shape{128, 48} : Shape{48, 128};
    const int line = turned ? 1 : 0, axis = along_depth ? 1 - line : line;
    NodeId scale = b.cast(b.input(half, {shape[static_cast<size_t>(axis)]}), DType::kF32);
    if (computed) scale = b.unary(Op::kSqrt, scale);
    const NodeId q = b.cast(b.input(DType::kI8, Shape(shape)), DType::kF32);
    NodeId w =
        b.cast(b.binary(Op::kMul, q, b.broadcast_in(scale, shape, std::span(&axis, 1))), half);
    if (!turned) w = b.permute(w, {1, 0});
    return canonical(b, {b.cast(b.matmul(b.input(half, {5, 128}), w), half)});
  };
  EXPECT_EQ(names_of(graph(false, false, false, DType::kF16)).size(), 2u);
  EXPECT_EQ(names_of(graph(true, false, false, DType::kF16)), Names{"by rules"}) << "turned";
  EXPECT_EQ(names_of(graph(false, true, false, DType::kF16)), Names{"by rules"})
      << "depth's scales";
  EXPECT_EQ(names_of(graph(false, false, true, DType::kF16)), Names{"by rules"})
      << "computed scales";
  EXPECT_EQ(names_of(graph(false, false, false, DType::kF32)), Names{"by rules"}) << "f32";
}

// Kernels subtract zeros as halves: what is none would be rounded twice.
TEST(PlanAlternatives, ZerosOfMorePrecisionThanHalvesAreSubtractedBefore) {
  const auto graph = [](std::optional<double> zero) {
    GraphBuilder b;
    const Shape shape = {48, 128};
    const NodeId q = b.cast(b.input(DType::kU8, Shape(shape)), DType::kF32);
    const NodeId by =
        zero ? b.constant(DType::kF32, *zero) : b.reshape(b.input(DType::kF32, {1}), {});
    const NodeId w = b.cast(b.binary(Op::kSub, q, b.broadcast(by, Shape(shape))), DType::kBF16);
    const NodeId y = b.matmul(b.input(DType::kBF16, {5, 128}), b.permute(w, {1, 0}));
    return canonical(b, {b.cast(y, DType::kBF16)});
  };
  EXPECT_EQ(names_of(graph(128)).size(), 2u);
  EXPECT_EQ(names_of(graph(7.3)), Names{"by rules"});
  EXPECT_EQ(names_of(graph(std::nullopt)), Names{"by rules"}) << "f32";
}

// As _scaled_mm with scales of 1x128 and 128x128 is lowered.
TEST(PlanAlternatives, ScalesOfBlocksArePartOfProductsOf8BitFloats) {
  const auto graph = [](int64_t columns) {
    GraphBuilder b;
    const auto scaled = [&](NodeId x, Shape blocks, Shape whole) {
      const NodeId scale = b.input(DType::kF32, {blocks[0], 1, blocks[1], 1});
      const Shape shape = b.shape(x);
      const NodeId each = b.reshape(b.broadcast(scale, std::move(whole)), Shape(shape));
      return b.binary(Op::kMul, b.cast(x, DType::kF32), each);
    };
    const NodeId x = scaled(b.input(DType::kF8E4M3, {40, 256}), {40, 2}, {40, 1, 2, 128});
    const NodeId w = b.permute(b.input(DType::kF8E4M3, {256, 256}), {1, 0});
    const NodeId y = scaled(w, {2, 256 / columns}, {2, 128, 256 / columns, columns});
    return canonical(b, {b.cast(b.matmul(x, y), DType::kBF16)});
  };
  const auto all = plan_alternatives(graph(128));
  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ((*all)[1].plan.launches.size(), 1u);
  EXPECT_EQ(names_of(graph(1)), Names{"by rules"}) << "a scale a column in each block";
}

TEST(PlanAlternatives, TheFirstIsThePlanByRules) {
  for (const Graph& graph : {attention(16, 512), shared_sum(8192)}) {
    const auto all = plan_alternatives(graph);
    const auto by_rules = plan(graph);
    ASSERT_TRUE(all && by_rules);
    EXPECT_EQ(all->front().plan.launches, by_rules->launches);
    EXPECT_EQ(all->front().rules, PartitionRules{});
  }
}

TEST(PlanAlternatives, AProgramIsKnownByItsKernels) {
  const auto all = plan_alternatives(attention(16, 512));
  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    std::vector<Digest> workloads;
    for (const Workload& kernel : (*all)[i].plan.kernels) workloads.push_back(kernel.digest);
    EXPECT_EQ(alternative_with(*all, workloads), i);
  }
  EXPECT_EQ(alternative_with(*all, {}), 0u) << "none of them: by rules";
}

// Whatever is chosen, the program means the same.
TEST(PlanAlternatives, AllComputeWhatTheGraphSays) {
  for (const Graph& graph : {attention(16, 512), shared_sum(4096), products_of_8_bits(40),
                             product_with_weights(64, true)}) {
    const auto all = plan_alternatives(graph);
    ASSERT_TRUE(all);
    ASSERT_EQ(all->size(), 2u);
    const std::vector<Tensor> inputs = testing::random_inputs(graph, 1);
    const auto expected = testing::evaluate(graph, testing::in_order(inputs));
    for (const PlanAlternative& one : *all) {
      SCOPED_TRACE(one.name);
      const auto actual = testing::run_plan(one.plan, testing::in_order(inputs));
      ASSERT_EQ(expected.size(), actual.size());
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_NO_FATAL_FAILURE(testing::expect_equal(expected[i], actual[i], 1e-6));
    }
  }
}

}  // namespace
}  // namespace kiln
