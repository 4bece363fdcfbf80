#include "compiler_core/kernels/pointwise/cpu_pointwise.h"

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
using testing::targets;

std::string check_pointwise(const Graph& graph, int limit = 100) {
  std::mt19937 random(7);
  const std::vector<Tensor> inputs = random_inputs(graph, random);
  for (const Target& target : targets()) {
    const std::string wrong = check_space({graph, Family::kPointwise, {}}, target, inputs, limit);
    if (!wrong.empty()) return wrong + "\n" + print(graph);
    limit = 1;  // on the other target, a first guess
  }
  return "";
}

TEST(Pointwise, SumOfSineAndCosineUnderEverySchedule) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {50, 61}), y = b.input(DType::kF32, {50, 61});
  const NodeId sum = b.binary(Op::kAdd, b.unary(Op::kSin, x), b.unary(Op::kCos, y));
  EXPECT_EQ(check_pointwise(*b.finish({sum})), "");
}

TEST(Pointwise, TransposesAreTiled) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kI64}) {
    GraphBuilder b;
    const NodeId x = b.input(dtype, {70, 3, 133});
    EXPECT_EQ(check_pointwise(*b.finish({b.permute(x, {2, 1, 0})}), 6), "");
  }
}

// Rows shorter than a vector, every so many elements apart: what a pooling of small images reads.
TEST(Pointwise, ShortRowsOfDistantElements) {
  struct Case {
    DType dtype;
    int64_t width, stride;
  };
  for (const auto [dtype, width, stride] :
       {Case{DType::kF32, 8, 2}, Case{DType::kF32, 15, 3}, Case{DType::kI32, 3, 5}}) {
    GraphBuilder b;
    const NodeId x = b.input(dtype, {6, 47});
    const NodeId short_rows = b.view(x, {6, width}, {47, stride}, 1);
    EXPECT_EQ(check_pointwise(*b.finish({b.binary(Op::kAdd, short_rows, short_rows)}), 2), "")
        << stride;
  }
}

TEST(Pointwise, RandomGraphsAgreeWithTheInterpreter) {
  const Shape shapes[] = {{},       {1},      {7},        {16},       {333},         {3, 5},
                          {17, 33}, {64, 48}, {2, 3, 24}, {5, 1, 19}, {4, 3, 2, 17}, {1030}};
  uint32_t seed = 1;
  for (const Shape& shape : shapes)
    for (int i = 0; i < 4; ++i, ++seed) {
      RandomGraph random(seed);
      const Graph graph = random.pointwise(shape, static_cast<int>(random.pick(1, 8)), i % 2 == 1);
      EXPECT_EQ(check_pointwise(graph, 1), "") << "seed " << seed;
    }
}

}  // namespace
}  // namespace kiln
