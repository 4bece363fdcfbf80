#include "compiler_core/kernels/analysis/repeated_values.h"

#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/plan/plan.h"

namespace kiln {
namespace {

// x = concat(x, x), `times` times, and a sine.
Graph doubling(int times) {
  GraphBuilder b;
  NodeId x = b.input(DType::kF32, {2});
  for (int i = 0; i < times; ++i) {
    const NodeId twice[] = {x, x};
    x = b.concat(twice, 0);
  }
  auto graph = b.finish({b.unary(Op::kSin, x)});
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  return *std::move(graph);
}

// x = concat(f(x), g(x)): its doubling is hidden from whoever looks for equal operands.
Graph disguised(int times) {
  GraphBuilder b;
  NodeId x = b.input(DType::kF32, {2});
  for (int i = 0; i < times; ++i) {
    const NodeId twice[] = {b.unary(Op::kNeg, x), b.unary(Op::kSin, x)};
    x = b.concat(twice, 0);
  }
  return *b.finish({x});
}

TEST(RepeatedValues, CountsEachPlaceOnce) {
  EXPECT_EQ(printed_values(doubling(0), 1000), 2);
  EXPECT_EQ(printed_values(doubling(3), 1000), 2 + 2 + 4 + 8);
  GraphBuilder b;  // arithmetic alone repeats nothing, however it is shared
  NodeId x = b.input(DType::kF32, {8});
  for (int i = 0; i < 100; ++i) x = b.binary(Op::kMul, b.unary(Op::kSin, x), b.unary(Op::kNeg, x));
  EXPECT_EQ(printed_values(*b.finish({x}), 1 << 20), 301);
}

TEST(RepeatedValues, DoublingGraphsAreRefusedBeforeTheyArePrinted) {
  for (const Graph& graph : {doubling(24), doubling(40), disguised(24)}) {
    const Workload workload{graph, Family::kPointwise, {}};
    for (const char* target : {"cpu:x86-64-v3", "cuda:sm_90a"}) {
      const auto space = search_space(workload, *Target::parse(target));
      ASSERT_FALSE(space.has_value());
      EXPECT_EQ(space.error().code, Code::kUnsupported);
      const auto lowered = lower(workload, {"cpu_pointwise", {}}, *Target::parse(target));
      ASSERT_FALSE(lowered.has_value());
    }
  }
  EXPECT_TRUE(search_space({doubling(4), Family::kPointwise, {}}, *Target::parse("cpu:x86-64-v3")));
}

}  // namespace
}  // namespace kiln
