#include "compiler_core/plan/row_update.h"

#include <gtest/gtest.h>

#include <functional>

#include "compiler_core/ir/builder.h"
#include "compiler_core/plan/kernel_cost.h"
#include "tests/compiler_core/plan/run_plan.h"

namespace kiln {
namespace {

using testing::families;

// What a step does with a cache of keys [2, 3, 1024, 8].
class Cache : public GraphBuilder {
 public:
  explicit Cache(DType dtype = DType::kF32, Shape shape = {2, 3, 1024, 8}, size_t along = 2)
      : shape_(std::move(shape)), along_(along) {
    cache = input(dtype, shape_);
    place = input(DType::kI64, {});
    Shape row = shape_;
    row[along] = 1;
    rows = input(dtype, row);
  }
  NodeId is_there(NodeId at) {
    const std::vector<int> axis = {static_cast<int>(along_)};
    return binary(Op::kEq, broadcast_in(iota(DType::kI64, shape_[along_]), shape_, axis),
                  broadcast(at, shape_));
  }
  NodeId written() { return select(is_there(place), broadcast(rows, shape_), cache); }

  NodeId cache = kInvalidNode, place = kInvalidNode, rows = kInvalidNode;

 private:
  const Shape shape_;
  const size_t along_;
};

// Its families, once it is known to compute what the graph does.
std::string planned(Cache& b, std::vector<NodeId> outputs) {
  const auto graph = b.finish(std::move(outputs));
  EXPECT_TRUE(graph) << graph.error().message;
  const auto form = normalise(*graph);
  EXPECT_TRUE(form) << form.error().message;
  const auto made = plan(form->graph);
  EXPECT_TRUE(made) << made.error().message;
  auto inputs = testing::random_inputs(form->graph, 1);
  const auto pointers = testing::in_order(inputs);
  const auto expected = testing::evaluate(form->graph, pointers);
  const auto got = testing::PlanRunner(*made, pointers, {}).run();
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(std::ranges::equal(got[i].bytes(), expected[i].bytes())) << "output " << i;
  return families(*made);
}

TEST(RowUpdate, IsWhatAStepDoesWithACache) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kI64}) {
    Cache b(dtype);
    EXPECT_EQ(planned(b, {b.written()}), "row_update") << to_string(dtype);
  }
  Cache one(DType::kF32, {1024, 64}, 0);
  EXPECT_EQ(planned(one, {one.written()}), "row_update");
}

TEST(RowUpdate, ItsRowIsComputedAndItsPlaceToo) {
  Cache b;
  const NodeId negative = b.binary(Op::kLt, b.place, b.constant_int(DType::kI64, 0));
  const NodeId from_end = b.binary(Op::kAdd, b.place, b.constant_int(DType::kI64, 1024));
  const NodeId at = b.select(negative, from_end, b.place);
  const NodeId rows = b.broadcast(b.rows, {2, 3, 1024, 8});
  EXPECT_EQ(planned(b, {b.select(b.is_there(at), b.unary(Op::kExp, rows), b.cache)}), "row_update");
}

// Rope, say: what is computed of a row is computed where it is written, unless others read it too.
TEST(RowUpdate, ArithmeticOfTheRowIsInItsKernel) {
  const Shape whole = {2, 3, 1024, 8};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Cache b(dtype);
    const NodeId wide = b.cast(b.rows, DType::kF32);
    const NodeId parts[] = {b.unary(Op::kNeg, b.slice(wide, 3, 4, 4)), b.slice(wide, 3, 0, 4)};
    const NodeId rope = b.binary(Op::kAdd, b.unary(Op::kCos, wide), b.concat(parts, 3));
    const NodeId row = b.broadcast(b.cast(rope, dtype), whole);
    EXPECT_EQ(planned(b, {b.select(b.is_there(b.place), row, b.cache)}), "row_update");
  }
  Cache b;
  const NodeId row = b.unary(Op::kExp, b.rows);
  const NodeId written = b.select(b.is_there(b.place), b.broadcast(row, whole), b.cache);
  EXPECT_EQ(planned(b, {written, b.matmul(row, b.input(DType::kF32, {2, 3, 8, 4}))}),
            "row_update pointwise matmul");
}

TEST(RowUpdate, OfTwoCachesIsOneKernel) {
  Cache b;
  const Shape whole = {2, 3, 1024, 8};
  const NodeId values = b.input(DType::kF32, whole), row = b.input(DType::kF32, {2, 3, 1, 8});
  const NodeId second = b.select(b.is_there(b.place), b.broadcast(row, whole), values);
  EXPECT_EQ(planned(b, {b.written(), second}), "row_update");
}

// The second layer's row is made of the first one's: the kernel that sums it up writes all of its cache.
TEST(RowUpdate, OfCachesThatFollowEachOtherAreKernelsEach) {
  Cache b;
  const Shape whole = {2, 3, 1024, 8};
  const NodeId first = b.written(), cache = b.input(DType::kF32, whole);
  const NodeId row = b.reduce(Op::kReduceSum, first, {2}, true);
  const NodeId second = b.select(b.is_there(b.place), b.broadcast(row, whole), cache);
  EXPECT_EQ(planned(b, {first, second}), "row_update column_reduction");
}

TEST(RowUpdate, OthersReadTheNewValue) {
  Cache product;
  const NodeId query = product.input(DType::kF32, {2, 3, 8, 4}), written = product.written();
  EXPECT_EQ(planned(product, {written, product.matmul(written, query)}), "row_update matmul");
  Cache sum;
  const NodeId summed = sum.written();
  EXPECT_EQ(planned(sum, {summed, sum.reduce(Op::kReduceSum, summed, {2})}),
            "row_update column_reduction");
}

TEST(RowUpdate, WhatMayStillBeReadIsNotWrittenOver) {
  const std::vector<std::pair<const char*, std::function<std::string()>>> refused = {
      {"another kernel reads the old value",
       [] {
         Cache b;
         const NodeId query = b.input(DType::kF32, {2, 3, 8, 4});
         return planned(b, {b.written(), b.matmul(b.cache, query)});
       }},
      {"the old value is given back too",
       [] {
         Cache b;
         return planned(b, {b.written(), b.cache});
       }},
      {"the row is made of other rows",
       [] {
         Cache b;
         const NodeId first = b.slice(b.cache, 2, 0, 1);
         const Shape whole = {2, 3, 1024, 8};
         return planned(b, {b.select(b.is_there(b.place), b.broadcast(first, whole), b.cache)});
       }},
      {"the new value is given back twice",
       [] {
         Cache b;
         const NodeId written = b.written();
         return planned(b, {written, written});
       }},
      {"another row in each part",
       [] {
         Cache b;
         const NodeId places = b.input(DType::kI64, {2, 1, 1, 1});
         return planned(
             b, {b.select(b.is_there(places), b.broadcast(b.rows, {2, 3, 1024, 8}), b.cache)});
       }},
      {"the innermost axis",
       [] {
         Cache b(DType::kF32, {64, 1024}, 1);
         return planned(b, {b.written()});
       }},
      {"less than 64 KiB", [] {
         Cache b(DType::kF32, {2, 3, 300, 8});
         return planned(b, {b.written()});
       }}};
  for (const auto& [what, make] : refused)
    EXPECT_EQ(make().find("row_update"), std::string::npos) << what;
}

TEST(RowUpdate, CostsARow) {
  Cache b(DType::kBF16);
  const auto form = normalise(*b.finish({b.written()}));
  const auto parts = partition(form->graph);
  ASSERT_TRUE(parts);
  ASSERT_EQ(parts->kernels.size(), 1u);
  const auto cost = kernel_cost(*parts, parts->kernels[0], {});
  ASSERT_TRUE(cost);
  EXPECT_EQ(cost->bytes, 3 * 2 * 3 * 8 * 2 + 8) << "its rows, the one before, the new one; a place";
}

}  // namespace
}  // namespace kiln
