#include "compiler_core/codegen/pointwise.h"

#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "tests/compiler_core/codegen/kernel_harness.h"

namespace kiln {
namespace {

using testing::check_space;
using testing::random_inputs;
using testing::targets;

std::string check(const Graph& graph, int limit = 100) {
  std::mt19937 random(7);
  const std::vector<Tensor> inputs = random_inputs(graph, random);
  for (const Target& target : targets()) {
    const std::string wrong = check_space({graph, Family::kPointwise, {}}, target, inputs, limit);
    if (!wrong.empty()) return wrong + "\n" + print(graph);
  }
  return "";
}

TEST(Pointwise, SumOfSineAndCosineUnderEverySchedule) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {50, 61}), y = b.input(DType::kF32, {50, 61});
  const NodeId sum = b.binary(Op::kAdd, b.unary(Op::kSin, x), b.unary(Op::kCos, y));
  EXPECT_EQ(check(*b.finish({sum})), "");
}

}  // namespace
}  // namespace kiln
