// Column reductions for CUDA, run on the fake GPU under the schedules of their space and under
// others that small shapes would not get.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"
#include "tests/compiler_core/kernels/kernel_harness.h"
#include "tests/compiler_core/kernels/random_graph.h"

namespace kiln {
namespace {

using testing::check_schedule;
using testing::check_space;
using testing::kHopper;
using testing::random_inputs;
using testing::RandomGraph;

std::string check_all_columns(const Graph& graph, std::span<const Tensor> inputs, int limit) {
  const Workload workload{graph, Family::kColumnReduction, {}};
  const std::string wrong = check_space(workload, kHopper, inputs, limit);
  return wrong.empty() ? "" : wrong + "\n" + print(graph);
}
std::string check_columns(const Graph& graph, int limit = 100) {
  std::mt19937 random(7);
  return check_all_columns(graph, random_inputs(graph, random), limit);
}
std::string check_columns_with(const Graph& graph, std::initializer_list<const char*> schedules) {
  std::mt19937 random(7);
  const std::vector<Tensor> inputs = random_inputs(graph, random);
  for (const char* schedule : schedules) {
    const std::string wrong = check_schedule({graph, Family::kColumnReduction, {}},
                                             *Schedule::parse(schedule), kHopper, inputs);
    if (!wrong.empty()) return wrong + "\n" + print(graph);
  }
  return "";
}

NodeId softmax(GraphBuilder& b, NodeId x) {
  const Shape shape = b.shape(x);
  const NodeId greatest = b.broadcast(b.reduce(Op::kReduceMax, x, {0}, true), shape);
  const NodeId e = b.unary(Op::kExp, b.binary(Op::kSub, x, greatest));
  return b.binary(Op::kDiv, e, b.broadcast(b.reduce(Op::kReduceSum, e, {0}, true), shape));
}

// Every form, odd and even: strips past the last column, rows that end inside a batch, one thread
// row and many, strips narrower and wider than a warp.
constexpr std::initializer_list<const char*> kForms = {
    "cuda.column_reduction lanes=1 across=32 down=4 unroll=2 split=0 keep=0",
    "cuda.column_reduction lanes=1 across=4 down=32 unroll=1 split=0 keep=0",
    "cuda.column_reduction lanes=2 across=16 down=2 unroll=4 split=0 keep=0",
    "cuda.column_reduction lanes=1 across=64 down=1 unroll=3 split=0 keep=0",
    "cuda.column_reduction lanes=2 across=2 down=16 unroll=8 split=0 keep=0",
    "cuda.column_reduction lanes=1 across=32 down=8 unroll=1 split=0 keep=1",
    "cuda.column_reduction lanes=2 across=8 down=16 unroll=1 split=0 keep=1",
    "cuda.column_reduction lanes=1 across=64 down=2 unroll=2 split=3 keep=0",
    "cuda.column_reduction lanes=2 across=8 down=4 unroll=4 split=7 keep=0",
    "cuda.column_reduction lanes=1 across=16 down=8 unroll=1 split=40 keep=0",
    "cuda.column_reduction lanes=2 across=8 down=8 unroll=4 cluster=4",
    "cuda.column_reduction lanes=1 across=32 down=4 unroll=2 cluster=8",
    "cuda.column_reduction lanes=1 across=64 down=1 unroll=2 cluster=2",
    "cuda.column_reduction lanes=2 across=16 down=4 unroll=1 cluster=4 keep=1",
    "cuda.column_reduction lanes=2 across=8 down=4 unroll=4 copy=1",
    "cuda.column_reduction lanes=1 across=32 down=2 unroll=3 copy=1 cluster=2",
    "cuda.column_reduction lanes=2 across=16 down=4 unroll=8 copy=1 split=5"};

TEST(CudaColumnReduction, EveryFormOfASum) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {131, 70});
  EXPECT_EQ(check_columns_with(*b.finish({b.reduce(Op::kReduceSum, x, {0})}), kForms), "");
}

TEST(CudaColumnReduction, EvenRowsNeedNoGuards) {
  GraphBuilder b;
  const NodeId x = b.cast(b.input(DType::kBF16, {64, 64}), DType::kF32);
  EXPECT_EQ(
      check_columns_with(*b.finish({b.cast(softmax(b, x), DType::kBF16)}),
                         {"cuda.column_reduction lanes=2 across=16 down=8 unroll=4",
                          "cuda.column_reduction lanes=2 across=8 down=8 unroll=1 keep=1 cluster=4",
                          "cuda.column_reduction lanes=8 across=8 down=4 unroll=2 split=4",
                          "cuda.column_reduction lanes=4 across=16 down=4 unroll=4 copy=1"}),
      "");
}

// Rows that no vector divides are taken several at a time.
constexpr std::initializer_list<const char*> kFoldedForms = {
    "cuda.column_reduction lanes=8 across=8 down=8 unroll=2 split=3",
    "cuda.column_reduction lanes=8 across=32 down=2 unroll=4 split=1 copy=1",
    "cuda.column_reduction lanes=4 across=16 down=4 unroll=2 split=5 copy=1",
    "cuda.column_reduction lanes=2 across=4 down=16 unroll=1 split=2"};

TEST(CudaColumnReduction, FoldedRowsOfHalves) {
  for (const auto& [rows, columns] : {std::pair{136, 70}, {141, 37}}) {
    GraphBuilder b;
    const Shape shape = {rows, columns};
    const NodeId x = b.cast(b.input(DType::kBF16, shape), DType::kF32);
    const NodeId scale = b.broadcast(b.input(DType::kF32, {1}), shape);
    const NodeId weight = b.input(DType::kBF16, {columns});
    const NodeId scaled = b.binary(Op::kMul, b.binary(Op::kMul, x, scale),
                                   b.broadcast(b.constant(DType::kF32, 0.5), shape));
    const NodeId sum =
        b.binary(Op::kMul, b.reduce(Op::kReduceSum, scaled, {0}), b.cast(weight, DType::kF32));
    const Graph graph = *b.finish({b.cast(sum, DType::kBF16), b.reduce(Op::kReduceMax, x, {0})});
    EXPECT_EQ(check_columns_with(graph, kFoldedForms), "") << columns;
  }
}

TEST(CudaColumnReduction, FoldsNoRowsThatKnowTheirColumn) {
  const auto refuses = [](const Graph& graph) {
    const auto source = lower_to_source({graph, Family::kColumnReduction, {}},
                                        *Schedule::parse(*kFoldedForms.begin()), kHopper);
    return !source && source.error().code == Code::kInvalidArgument;
  };
  const Shape shape = {136, 37};
  {
    GraphBuilder b;
    const NodeId weight = b.broadcast(b.input(DType::kF32, {37}), shape);
    const NodeId x = b.binary(Op::kMul, b.input(DType::kF32, shape), weight);
    EXPECT_TRUE(refuses(*b.finish({b.reduce(Op::kReduceSum, x, {0})})));
  }
  {
    GraphBuilder b;
    EXPECT_TRUE(refuses(*b.finish({softmax(b, b.input(DType::kF32, shape))})));
  }
  GraphBuilder b;
  EXPECT_TRUE(refuses(*b.finish({b.reduce(Op::kReduceSum, b.input(DType::kF32, {15, 37}), {0})})));
}

TEST(CudaColumnReduction, IntegersAndDoubles) {
  for (const DType dtype : {DType::kF64, DType::kI64, DType::kI32, DType::kI8}) {
    GraphBuilder b;
    const NodeId x = b.input(dtype, {131, 70});
    EXPECT_EQ(check_columns_with(
                  *b.finish({b.reduce(Op::kReduceSum, x, {0})}),
                  {"cuda.column_reduction lanes=2 across=16 down=4 unroll=2 split=0 keep=0",
                   "cuda.column_reduction lanes=2 across=8 down=4 unroll=4 split=7 keep=0"}),
              "");
  }
}

TEST(CudaColumnReduction, EveryFormOfASoftmaxInHalves) {
  GraphBuilder b;
  const NodeId x = b.cast(b.input(DType::kBF16, {67, 34}), DType::kF32);
  EXPECT_EQ(check_columns_with(*b.finish({b.cast(softmax(b, x), DType::kBF16)}), kForms), "");
}

TEST(CudaColumnReduction, EveryFormOfMeansInGroupsWithSeveralOutputs) {
  GraphBuilder b;
  const Shape shape = {3, 45, 2, 26};
  const NodeId x = b.input(DType::kF32, shape);
  const NodeId weight = b.broadcast(b.input(DType::kF32, {26}), shape);
  const NodeId mean = b.binary(Op::kMul, b.reduce(Op::kReduceSum, x, {1}, true),
                               b.broadcast(b.constant(DType::kF32, 1.0 / 45), {3, 1, 2, 26}));
  const NodeId centred = b.binary(Op::kSub, x, b.broadcast(mean, shape));
  const NodeId variance = b.reduce(Op::kReduceSum, b.binary(Op::kMul, centred, centred), {1});
  const NodeId y = b.binary(Op::kMul, centred, weight);
  auto binding = make_workload(*b.finish({y, variance, b.reduce(Op::kReduceMin, x, {1})}));
  ASSERT_TRUE(binding) << binding.error().message;
  ASSERT_EQ(binding->workload.family, Family::kColumnReduction);
  EXPECT_EQ(check_columns_with(binding->workload.graph, kForms), "");
}

TEST(CudaColumnReduction, WideAndNarrowLoadsUnderEverySchedule) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kU8})
    for (const Shape& shape : {Shape{300, 96}, Shape{77, 37}}) {
      GraphBuilder b;
      const NodeId x = b.input(dtype, shape);
      const NodeId wide = is_half(dtype) ? b.cast(x, DType::kF32) : x;
      EXPECT_EQ(check_columns(*b.finish({b.reduce(Op::kReduceMax, wide, {0})}), 3), "");
    }
}

TEST(CudaColumnReduction, RandomGraphsAgreeWithTheInterpreter) {
  struct Case {
    Shape shape;
    int begin, end;
  };
  const Case cases[] = {{{7, 3}, 0, 1},        {{33, 64}, 0, 1},      {{130, 9}, 0, 1},
                        {{2, 40, 19}, 1, 2},   {{200, 200}, 0, 1},    {{3, 4, 5, 17}, 1, 3},
                        {{5, 3, 2, 33}, 0, 1}, {{2, 31, 2, 70}, 1, 2}};
  uint32_t seed = 300;
  for (const Case& c : cases)
    for (int i = 0; i < 2; ++i, ++seed) {
      RandomGraph random(seed);
      const Graph graph = random.reduction(c.shape, c.begin, c.end);
      EXPECT_EQ(check_columns(graph, 2), "") << "seed " << seed;
    }
}

TEST(CudaColumnReduction, NanAndInfinityGoWhereTheyShould) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {40, 16});
  std::vector<Tensor> inputs;
  inputs.emplace_back(DType::kF32, std::vector<int64_t>{40, 16});
  for (int64_t i = 0; i < inputs[0].numel(); ++i)
    inputs[0].set(i, std::sin(static_cast<double>(i)));
  inputs[0].set(39 * 16 + 1, NAN);
  inputs[0].set(3 * 16 + 2, INFINITY);
  for (int64_t row = 0; row < 40; ++row) inputs[0].set(row * 16 + 3, -INFINITY);
  inputs[0].set(16 + 4, INFINITY);
  inputs[0].set(20 * 16 + 4, -INFINITY);
  const Graph graph = *b.finish(
      {softmax(b, x), b.reduce(Op::kReduceMax, x, {0}), b.reduce(Op::kReduceMin, x, {0})});
  for (const char* schedule :
       {"cuda.column_reduction lanes=1 across=8 down=16 unroll=2 split=0 keep=0",
        "cuda.column_reduction lanes=4 across=4 down=8 unroll=1 split=0 keep=1",
        "cuda.column_reduction lanes=2 across=8 down=4 unroll=2 split=5 keep=0"})
    EXPECT_EQ(check_schedule({graph, Family::kColumnReduction, {}}, *Schedule::parse(schedule),
                             kHopper, inputs),
              "");
}

// The same bits under threads and blocks in any order are the fake GPU's own check of each run;
// here: a different order of summation is a different schedule, never the same one.
TEST(CudaColumnReduction, RefusesWhatNoKernelIsWrittenFor) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {131, 70});
  const Workload workload{
      *b.finish({b.reduce(Op::kReduceSum, x, {0})}), Family::kColumnReduction, {}};
  for (const char* text :
       {"cuda.column_reduction lanes=4", "cuda.column_reduction lanes=3",
        "cuda.column_reduction across=2048", "cuda.column_reduction across=2 down=2",
        "cuda.column_reduction unroll=0", "cuda.column_reduction split=1000",
        "cuda.column_reduction split=4 keep=1", "cuda.column_reduction lanes=2 cluster=16",
        "cuda.column_reduction lanes=2 cluster=2 split=2",
        "cuda.column_reduction lanes=2 copy=1 keep=1",
        "cuda.column_reduction lanes=2 across=64 down=16 unroll=16 copy=1 split=0 keep=2",
        "cuda.column_reduction across=32 down=1 keep=1", "cuda.row_reduction"}) {
    const auto source = lower_to_source(workload, *Schedule::parse(text), kHopper);
    ASSERT_FALSE(source) << text;
    EXPECT_EQ(source.error().code, Code::kInvalidArgument) << text;
  }
}

TEST(CudaColumnReductionSpace, BeginsWithWholeRowsInFlightAndHasEveryForm) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {16384, 4096});
  const auto space = search_space(
      {*b.finish({b.reduce(Op::kReduceSum, x, {0})}), Family::kColumnReduction, {}}, kHopper);
  ASSERT_TRUE(space);
  EXPECT_GE(space->size(), 6u);
  EXPECT_LE(space->size(), 12u);
  int split = 0;
  for (const Schedule& schedule : *space) {
    EXPECT_EQ(schedule.get("lanes", 0), 4) << "16 bytes a load";
    split += schedule.get("split", 0) > 0 ? 1 : 0;
  }
  EXPECT_GT(split, 0);
  EXPECT_LT(split, static_cast<int>(space->size()));
}

TEST(CudaColumnReductionSpace, FoldsRowsThatNoVectorDivides) {
  GraphBuilder b;
  const NodeId x = b.cast(b.input(DType::kBF16, {40'000, 3001}), DType::kF32);
  const auto space = search_space(
      {*b.finish({b.reduce(Op::kReduceSum, x, {0})}), Family::kColumnReduction, {}}, kHopper);
  ASSERT_TRUE(space);
  ASSERT_GE(space->size(), 4u);
  EXPECT_EQ(space->front().get("lanes", 0), 8) << "16 bytes a load";
}

TEST(CudaColumnReductionSpace, KeepsRowsOfSeveralLoopsWhereTheyFit) {
  const auto keeps = [](int64_t rows) {
    GraphBuilder b;
    const NodeId x = b.input(DType::kF32, {rows, 4096});
    const auto space =
        search_space({*b.finish({softmax(b, x)}), Family::kColumnReduction, {}}, kHopper);
    int count = 0;
    for (const Schedule& schedule : *space) count += schedule.get("keep", 0) == 1 ? 1 : 0;
    return count;
  };
  EXPECT_GT(keeps(256), 0);
  EXPECT_EQ(keeps(100'000), 0);
}

}  // namespace
}  // namespace kiln
