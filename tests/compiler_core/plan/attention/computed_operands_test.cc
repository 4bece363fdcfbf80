// Which keys and values a kernel of attention computes as it reads them, and which are stored.
#include "compiler_core/plan/attention/computed_operands.h"

#include <gtest/gtest.h>

#include <functional>

#include "compiler_core/ir/builder.h"
#include "compiler_core/plan/plan.h"
#include "tests/compiler_core/plan/run_plan.h"

namespace kiln::cached_keys {

constexpr int64_t kBatch = 2, kHeads = 2, kKeys = 48, kWidth = 16;

static NodeId repeated(GraphBuilder& b, NodeId x, int64_t times) {
  if (times == 1) return x;
  const NodeId apart = b.reshape(x, {kBatch, kHeads, 1, kKeys, kWidth});
  return b.reshape(b.broadcast(apart, {kBatch, kHeads, times, kKeys, kWidth}),
                   {kBatch, kHeads * times, kKeys, kWidth});
}

// [batch, heads, rows, width] of queries that look at keys and values [batch, heads, keys, width].
static NodeId attention(GraphBuilder& b, NodeId key, NodeId value, int64_t rows,
                        int64_t shared_by = 1) {
  const Shape scores = {kBatch, kHeads * shared_by, rows, kKeys};
  const NodeId query = b.input(DType::kBF16, {kBatch, kHeads * shared_by, rows, kWidth});
  const NodeId x = b.matmul(query, b.permute(repeated(b, key, shared_by), {0, 1, 3, 2}));
  const auto along = [&](NodeId reduced) {
    return b.broadcast(b.reshape(reduced, {kBatch, kHeads * shared_by, rows, 1}), Shape(scores));
  };
  const NodeId e =
      b.unary(Op::kExp, b.binary(Op::kSub, x, along(b.reduce(Op::kReduceMax, x, {3}))));
  const NodeId weights = b.binary(Op::kDiv, e, along(b.reduce(Op::kReduceSum, e, {3})));
  return b.cast(b.matmul(b.cast(weights, DType::kBF16), repeated(b, value, shared_by)),
                DType::kBF16);
}

// 8 bits, times a scale of each token.
static NodeId scaled(GraphBuilder& b, NodeId narrow, NodeId scale) {
  const NodeId wide = b.cast(narrow, DType::kF32);
  return b.cast(b.binary(Op::kMul, wide, b.broadcast(scale, Shape(b.shape(wide)))), DType::kBF16);
}
static NodeId scaled(GraphBuilder& b) {
  const NodeId narrow = b.input(DType::kF8E4M3, {kBatch, kHeads, kKeys, kWidth});
  return scaled(b, narrow, b.input(DType::kF32, {kBatch, kHeads, kKeys, 1}));
}
// Of pages of four tokens, which `table` names.
static NodeId paged(GraphBuilder& b, NodeId table) {
  const NodeId pool = b.input(DType::kBF16, {20, 4, kHeads, kWidth});
  return b.permute(b.reshape(b.gather(pool, table), {kBatch, kKeys, kHeads, kWidth}), {0, 2, 1, 3});
}

using Program = std::function<std::vector<NodeId>(GraphBuilder&)>;
static std::string families_of(const Program& program, bool computes_keys = true) {
  GraphBuilder b;
  const auto graph = b.finish(program(b));
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  PartitionRules rules;
  rules.computes_keys = computes_keys;
  return graph ? testing::families(testing::right_plan(*graph, rules)) : "";
}

TEST(ComputedOperands, CachesOf8BitsAreReadAsTheyAre) {
  for (const int64_t shared_by : {1, 3}) {
    const auto program = [&](GraphBuilder& b) {
      const NodeId key = scaled(b), value = scaled(b);
      return std::vector{attention(b, key, value, 1, shared_by)};
    };
    EXPECT_EQ(families_of(program), "attention");
    EXPECT_EQ(families_of(program, false), "pointwise pointwise attention");
  }
}

TEST(ComputedOperands, PagesAreReadWhereTheyLie) {
  for (const int64_t shared_by : {1, 4})
    EXPECT_EQ(families_of([&](GraphBuilder& b) {
                const NodeId table = b.input(DType::kI64, {kBatch, kKeys / 4});
                const NodeId key = paged(b, table), value = paged(b, table);
                return std::vector{attention(b, key, value, 1, shared_by)};
              }),
              "attention");
}

TEST(ComputedOperands, ATableThatIsComputedIsStored) {
  EXPECT_EQ(families_of([&](GraphBuilder& b) {
              const NodeId places = b.input(DType::kI64, {kBatch, kKeys / 4});
              const NodeId nine = b.broadcast(b.constant_int(DType::kI64, 9), {kBatch, kKeys / 4});
              const NodeId table = b.binary(Op::kDiv, b.binary(Op::kMul, places, nine), nine);
              const NodeId key = paged(b, table), value = paged(b, table);
              return std::vector{attention(b, key, value, 1)};
            }),
            "pointwise attention");
}

TEST(ComputedOperands, ManyRowsReadWhatIsStored) {
  const auto of_rows = [](int64_t rows, int64_t shared_by) {
    return families_of([&](GraphBuilder& b) {
      const NodeId key = scaled(b), value = scaled(b);
      return std::vector{attention(b, key, value, rows, shared_by)};
    });
  };
  EXPECT_EQ(of_rows(16, 1), "attention");
  EXPECT_EQ(of_rows(17, 1), "pointwise pointwise attention");
  EXPECT_EQ(of_rows(2, 2), "pointwise pointwise attention");  // they would be computed twice
}

TEST(ComputedOperands, WhatOthersReadTooIsStored) {
  EXPECT_EQ(families_of([](GraphBuilder& b) {
              const NodeId key = scaled(b), value = scaled(b);
              return std::vector{attention(b, key, value, 1), key};
            }),
            "pointwise attention");
}

TEST(ComputedOperands, WhatIsNotInMemoryInAnyCaseStaysWithItsOwnKernel) {
  EXPECT_EQ(families_of([](GraphBuilder& b) {
              const NodeId x = b.input(DType::kBF16, {kBatch, kHeads, kKeys, 32});
              const NodeId w = b.input(DType::kBF16, {kBatch, kHeads, 32, kWidth});
              const NodeId scale = b.input(DType::kF32, {kBatch, kHeads, kKeys, 1});
              const NodeId product = b.matmul(x, w);
              const NodeId key =
                  b.cast(b.binary(Op::kMul, product, b.broadcast(scale, Shape(b.shape(product)))),
                         DType::kBF16);
              return std::vector{attention(b, key, scaled(b), 1)};
            }),
            "matmul attention");
}

// A step writes one token into its cache of 8 bits, and attention reads the whole.
TEST(ComputedOperands, AnUpdatedCacheIsReadAsItIs) {
  EXPECT_EQ(families_of([](GraphBuilder& b) {
              const NodeId cache = b.input(DType::kI8, {kKeys, kBatch * kHeads * kWidth});
              const NodeId row = b.input(DType::kI8, {1, kBatch * kHeads * kWidth});
              const NodeId place = b.input(DType::kI64, {1});
              const NodeId now = b.scatter(cache, place, row, Combine::kSet);
              const NodeId narrow =
                  b.permute(b.reshape(now, {kKeys, kBatch, kHeads, kWidth}), {1, 2, 0, 3});
              const NodeId scale = b.input(DType::kF32, {1, 1, 1, 1});
              const NodeId value = scaled(b);
              return std::vector{now, attention(b, scaled(b, narrow, scale), value, 1)};
            }),
            "scatter attention");
}

}  // namespace kiln::cached_keys
