// Which partition `default` mode takes, of products whose weights have 8 bits or 4.
#include "compiler_core/kernels/untimed_partition.h"

#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/passes/normalise.h"
#include "tests/compiler_core/ir/four_bits.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::kAmpere;
using testing::kHopper;

enum class Form { kBytes, kTwoInAByte, kWords };

// `rows` of x times the transpose of weights, [4096, 4096], in groups of 128.
Graph product(Form form, int64_t rows, DType x = DType::kBF16, int64_t depth = 4096) {
  constexpr int64_t kColumns = 4096, kGroup = 128;
  GraphBuilder b;
  const Shape groups = {kColumns, depth / kGroup, kGroup};
  NodeId q = kInvalidNode;
  if (form == Form::kBytes) q = b.input(DType::kI8, {kColumns, depth});
  if (form == Form::kTwoInAByte)
    q = testing::taken_apart(b, b.input(DType::kU8, {kColumns, depth / 2}), true);
  if (form == Form::kWords)
    q = testing::words_apart(b, b.input(DType::kI32, {kColumns / 8, depth / 128, 32, 4}));
  const NodeId scale = b.cast(b.input(DType::kBF16, {kColumns, depth / kGroup, 1}), DType::kF32);
  NodeId w = b.binary(Op::kSub, b.cast(b.reshape(q, groups), DType::kF32),
                      b.broadcast(b.constant(DType::kF32, 8.0), Shape(groups)));
  w = b.binary(Op::kMul, w, b.broadcast(scale, Shape(groups)));
  w = b.permute(b.reshape(b.cast(w, x), {kColumns, depth}), {1, 0});
  const NodeId y = b.cast(b.matmul(b.input(x, {rows, depth}), w), x);
  return normalise(b.finish({y}).value())->graph;
}

std::string first_template(const Graph& graph, const Target& target) {
  const auto chosen = untimed_partition(graph, target);
  if (!chosen) return chosen.error().message;
  for (const Workload& workload : chosen->plan.kernels)
    if (workload.family == Family::kMatmul)
      return (*search_space(workload, target))[0].template_name;
  return "no product";
}

TEST(UntimedPartition, FewRowsReadWeightsAsTheyAreStored) {
  for (const Form form : {Form::kBytes, Form::kTwoInAByte, Form::kWords})
    for (const Target& target : {kHopper, kAmpere})
      for (const int64_t rows : {1, 16, 64}) {
        const Graph graph = product(form, rows);
        const auto chosen = untimed_partition(graph, target);
        ASSERT_TRUE(chosen) << chosen.error().message;
        EXPECT_EQ(chosen->name, "operands of 8 bits");
        EXPECT_FALSE(chosen->rules.widen_stored);
        EXPECT_EQ(chosen->plan.launches.size(), 1u);
        EXPECT_EQ(first_template(graph, target), "cuda.matmul.narrow");
      }
}

// Many rows are multiplied at the rate of the tensor cores, which wgmma alone reaches; weights that are
// widened once for all of them cost little beside that.
TEST(UntimedPartition, ManyRowsReadWeightsThatWereWidened) {
  for (const Form form : {Form::kBytes, Form::kTwoInAByte, Form::kWords}) {
    const Graph graph = product(form, 8192);
    EXPECT_EQ(untimed_partition(graph, kHopper)->name, "by rules");
    EXPECT_NE(first_template(graph, kHopper).find("wgmma"), std::string::npos);
    EXPECT_EQ(first_template(graph, kAmpere), "cuda.matmul.narrow") << "the same rate either way";
  }
}

TEST(UntimedPartition, TheChoiceIsTheSmallerEstimate) {
  for (const int64_t rows : {1, 128, 512, 1024, 8192}) {
    const Graph graph = product(Form::kBytes, rows);
    const auto all = plan_alternatives(graph, partition_rules(kHopper), ChosenBy::kEstimates);
    ASSERT_TRUE(all);
    ASSERT_EQ(all->size(), 2u);
    const double by_rules = *expected_us((*all)[0].plan, kHopper);
    const double as_stored = *expected_us((*all)[1].plan, kHopper);
    EXPECT_GT(by_rules, 0);
    EXPECT_EQ(untimed_partition(graph, kHopper)->name,
              as_stored < by_rules ? "operands of 8 bits" : "by rules")
        << rows;
  }
}

// A device that nothing is known about is one with the proportions of another.
TEST(UntimedPartition, AnUnknownDeviceIsNoReasonToWiden) {
  EXPECT_EQ(untimed_partition(product(Form::kBytes, 4), *Target::parse("cuda:sm_89"))->name,
            "operands of 8 bits");
}

// The narrow template takes halves alone; of f32, nothing else is there to choose.
TEST(UntimedPartition, WhatNoKernelReadsAsItIsStoredIsWidened) {
  EXPECT_EQ(untimed_partition(product(Form::kBytes, 4, DType::kF32), kHopper)->name, "by rules");
  EXPECT_EQ(untimed_partition(product(Form::kBytes, 4), *Target::parse("cpu:x86-64-v3"))->name,
            "by rules");
}

// A product of 8-bit integers on both sides, which only wgmma reads as they are stored.
TEST(UntimedPartition, APartitionWithoutKernelsIsNotChosen) {
  GraphBuilder b;
  const NodeId x = b.cast(b.input(DType::kI8, {16, 256}), DType::kI32);
  const NodeId y = b.cast(b.permute(b.input(DType::kI8, {96, 256}), {1, 0}), DType::kI32);
  const Graph graph = normalise(b.finish({b.matmul(x, y)}).value())->graph;
  const auto all = plan_alternatives(graph, {}, ChosenBy::kEstimates);
  ASSERT_EQ(all->size(), 2u);
  EXPECT_FALSE(expected_us((*all)[1].plan, kAmpere));
  EXPECT_EQ(untimed_partition(graph, kAmpere)->name, "by rules");
  EXPECT_EQ(untimed_partition(graph, kHopper)->name, "operands of 8 bits");
}

}  // namespace
}  // namespace kiln
