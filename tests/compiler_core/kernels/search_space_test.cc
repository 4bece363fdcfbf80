#include "compiler_core/kernels/registry.h"

#include <gtest/gtest.h>

#include <set>

#include "compiler_core/ir/builder.h"
#include "compiler_core/kernels/analysis/reduction_passes.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::softmax;

std::vector<Workload> workloads_of_many_sizes() {
  std::vector<Workload> all;
  for (int64_t size : {1, 7, 1000, 1 << 20, 1 << 26}) {
    GraphBuilder b;
    all.push_back(
        {*b.finish({b.unary(Op::kSin, b.input(DType::kF32, {size}))}), Family::kPointwise, {}});
  }
  const std::pair<int64_t, int64_t> sizes[] = {{2, 3}, {37, 515}, {16384, 4096}, {1, 1 << 22}};
  for (const auto& [rows, columns] : sizes)
    for (DType dtype : {DType::kF32, DType::kF64}) {
      GraphBuilder row, column;
      all.push_back({*row.finish({softmax(row, row.input(dtype, {rows, columns}), 1)}),
                     Family::kRowReduction,
                     {}});
      all.push_back({*column.finish({softmax(column, column.input(dtype, {columns, rows}), 0)}),
                     Family::kColumnReduction,
                     {}});
    }
  return all;
}

TEST(SearchSpace, IsSmallDistinctAndTheSameEveryTime) {
  for (const char* name : {"cpu:x86-64-v3", "cpu:x86-64-v4"})
    for (const Workload& workload : workloads_of_many_sizes()) {
      const Target target = *Target::parse(name);
      const auto space = search_space(workload, target);
      ASSERT_TRUE(space);
      EXPECT_GE(space->size(), 1u);
      EXPECT_LE(space->size(), 24u);
      EXPECT_EQ(*space, *search_space(workload, target));
      std::set<std::string> texts;
      for (const Schedule& schedule : *space) {
        ASSERT_NE(find_kernel_template(schedule.template_name), nullptr) << schedule.to_string();
        EXPECT_TRUE(texts.insert(schedule.to_string()).second) << schedule.to_string();
        EXPECT_EQ(*Schedule::parse(schedule.to_string()), schedule);
      }
    }
}

TEST(SearchSpace, RefusesTargetsWithoutKernels) {
  for (const char* name : {"cpu:x86-64", "cpu:x86-64-v2", "cuda:sm_75"}) {
    const auto space = search_space(workloads_of_many_sizes()[0], *Target::parse(name));
    ASSERT_FALSE(space);
    EXPECT_EQ(space.error().code, Code::kUnsupported);
  }
}

// A slice of a large GPU, or a small one: fewer SMs than a cluster's GPC has.
TEST(SearchSpace, IsListedForDevicesOfAFewSms) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {3, 200, 40});
  const auto sums = make_workload(*b.finish({b.reduce(Op::kReduceSum, x, {1})}));
  ASSERT_TRUE(sums) << sums.error().message;
  for (const int units : {1, 7, 16}) {
    Target target = *Target::parse("cuda:sm_90a");
    target.units = units;
    const auto space = search_space(sums->workload, target);
    ASSERT_TRUE(space) << space.error().message;
    EXPECT_FALSE(space->empty()) << units;
  }
}

TEST(ReductionPasses, SoftmaxTakesThreeLoopsAndKeepsTheExponential) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {8, 64});
  const Graph graph = *b.finish({softmax(b, x, 1)});
  const auto passes = ReductionPasses::of(graph, ReductionPasses::Keep::kCostly);
  ASSERT_EQ(passes.passes.size(), 3u);
  EXPECT_EQ(graph.node(passes.passes[0].reduces.at(0)).op, Op::kReduceMax);
  EXPECT_EQ(graph.node(passes.passes[1].reduces.at(0)).op, Op::kReduceSum);
  EXPECT_EQ(passes.passes[2].outputs, std::vector<int>{0});
  ASSERT_EQ(passes.passes[1].kept.size(), 1u);
  EXPECT_EQ(graph.node(passes.passes[1].kept[0]).op, Op::kExp);
  EXPECT_EQ(passes.kept_bytes_per_element(graph), 4);
  EXPECT_EQ(
      ReductionPasses::of(graph, ReductionPasses::Keep::kNothing).kept_bytes_per_element(graph), 0);
}

TEST(ReductionPasses, ReductionsOfOneDepthShareALoop) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {8, 64});
  const NodeId square = b.binary(Op::kMul, x, x);
  const Graph graph =
      *b.finish({b.reduce(Op::kReduceSum, x, {1}), b.reduce(Op::kReduceSum, square, {1})});
  const auto passes = ReductionPasses::of(graph, ReductionPasses::Keep::kNothing);
  ASSERT_EQ(passes.passes.size(), 2u);
  EXPECT_EQ(passes.passes[0].reduces.size(), 2u);
  EXPECT_TRUE(passes.passes[1].empty());
  EXPECT_EQ(passes.reduced_outputs, (std::vector<int>{0, 1}));
}

}  // namespace
}  // namespace kiln
