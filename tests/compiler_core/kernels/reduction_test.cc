#include <gtest/gtest.h>

#include <limits>

#include "compiler_core/ir/text.h"
#include "tests/compiler_core/kernels/kernel_harness.h"
#include "tests/compiler_core/kernels/random_graph.h"

namespace kiln {
namespace {

using testing::check_space;
using testing::random_inputs;
using testing::RandomGraph;
using testing::softmax;
using testing::targets;

std::string check_reduction(const Graph& graph, Family family, int limit) {
  std::mt19937 random(7);
  const std::vector<Tensor> inputs = random_inputs(graph, random);
  // Every schedule on this machine's own target, a first guess on the other.
  for (const Target& target : targets()) {
    const std::string wrong = check_space({graph, family, {}}, target, inputs, limit);
    if (!wrong.empty()) return wrong + "\n" + print(graph);
    limit = 1;
  }
  return "";
}

TEST(RowReduction, SoftmaxUnderEverySchedule) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {37, 515});
  EXPECT_EQ(check_reduction(*b.finish({softmax(b, x, 1)}), Family::kRowReduction, 100), "");
}

TEST(RowReduction, RandomGraphsAgreeWithTheInterpreter) {
  struct Case {
    Shape shape;
    int begin;
  };
  const Case cases[] = {{{7}, 0},      {{1000}, 0},     {{5, 3}, 1},        {{3, 64}, 1},
                        {{9, 130}, 1}, {{2, 3, 40}, 2}, {{4, 3, 5, 17}, 2}, {{2, 5, 33}, 1}};
  uint32_t seed = 100;
  for (const Case& c : cases)
    for (int i = 0; i < 3; ++i, ++seed) {
      RandomGraph random(seed);
      const Graph graph = random.reduction(c.shape, c.begin, static_cast<int>(c.shape.size()));
      EXPECT_EQ(check_reduction(graph, Family::kRowReduction, 2), "") << "seed " << seed;
    }
}

TEST(RowReduction, ARowsElementPickedByAnIndex) {
  for (const int64_t columns : {50, 40000}) {
    GraphBuilder b;
    const NodeId x = b.input(DType::kF32, {2, columns}), column = b.input(DType::kI64, {2});
    const NodeId row = b.binary(Op::kMul, b.iota(DType::kI64, 2),
                                b.broadcast(b.constant_int(DType::kI64, columns), {2}));
    const NodeId entry = b.gather(b.reshape(x, {2 * columns}), b.binary(Op::kAdd, row, column));
    EXPECT_EQ(
        check_reduction(*b.finish({b.binary(Op::kSub, b.reduce(Op::kReduceSum, x, {1}), entry)}),
                        Family::kRowReduction, 100),
        "");
  }
}

TEST(RowReduction, LongRowsAreCutIntoPieces) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {2, 70001});
  EXPECT_EQ(check_reduction(*b.finish({softmax(b, x, 1), b.reduce(Op::kReduceSum, x, {1})}),
                            Family::kRowReduction, 4),
            "");
}

TEST(ColumnReduction, SoftmaxOverTheFirstAxisUnderEverySchedule) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {129, 43});
  EXPECT_EQ(check_reduction(*b.finish({softmax(b, x, 0)}), Family::kColumnReduction, 100), "");
}

TEST(ColumnReduction, SumUnderEverySchedule) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {301, 170});
  EXPECT_EQ(
      check_reduction(*b.finish({b.reduce(Op::kReduceSum, x, {0})}), Family::kColumnReduction, 100),
      "");
}

TEST(ColumnReduction, RandomGraphsAgreeWithTheInterpreter) {
  struct Case {
    Shape shape;
    int begin, end;
  };
  const Case cases[] = {{{7, 3}, 0, 1},        {{33, 64}, 0, 1},      {{130, 9}, 0, 1},
                        {{2, 40, 19}, 1, 2},   {{200, 200}, 0, 1},    {{3, 4, 5, 17}, 1, 3},
                        {{5, 3, 2, 33}, 0, 1}, {{2, 31, 2, 70}, 1, 2}};
  uint32_t seed = 200;
  for (const Case& c : cases)
    for (int i = 0; i < 3; ++i, ++seed) {
      RandomGraph random(seed);
      const Graph graph = random.reduction(c.shape, c.begin, c.end);
      EXPECT_EQ(check_reduction(graph, Family::kColumnReduction, 2), "") << "seed " << seed;
    }
}

}  // namespace
}  // namespace kiln
