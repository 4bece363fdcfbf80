// Products of one first operand: which become one kernel, and which stay apart.
#include "compiler_core/plan/joined_products.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "compiler_core/ir/builder.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/workload.h"
#include "tests/compiler_core/plan/run_plan.h"

namespace kiln {
namespace {

using testing::families;

PartitionRules joins(int64_t rows = std::numeric_limits<int64_t>::max()) {
  PartitionRules rules;
  rules.most_joined_rows = rows;
  return rules;
}

// A program of x [rows, depth] in bf16, and what `outputs` makes of it.
using Outputs = std::function<std::vector<NodeId>(GraphBuilder&, NodeId x)>;
Graph program_of(int64_t rows, int64_t depth, const Outputs& outputs) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kBF16, {rows, depth});
  return *b.finish(outputs(b, x));
}

NodeId widened(GraphBuilder& b, NodeId x) {
  return b.cast(x, DType::kF32);
}
NodeId rounded(GraphBuilder& b, NodeId x) {
  return b.cast(x, DType::kBF16);
}
// x times a weight as a Linear has it, [columns, depth], in f32.
NodeId linear(GraphBuilder& b, NodeId x, int64_t columns) {
  const Dim depth = b.shape(x)[1];
  return b.matmul(x, b.permute(b.input(DType::kBF16, {columns, depth}), {1, 0}));
}

std::vector<NodeId> three_results(GraphBuilder& b, NodeId x) {
  std::vector<NodeId> outputs;
  for (const int64_t columns : {32, 16, 16}) {
    NodeId y = linear(b, x, columns);
    const NodeId bias = widened(b, b.input(DType::kBF16, {columns}));
    y = b.binary(Op::kAdd, y, b.broadcast(bias, {b.shape(x)[0], columns}));
    outputs.push_back(rounded(b, y));
  }
  return outputs;
}

std::vector<NodeId> gated(GraphBuilder& b, NodeId x) {
  const NodeId gate = rounded(b, b.unary(Op::kTanh, linear(b, x, 48)));
  const NodeId up = rounded(b, linear(b, x, 48));
  return {rounded(b, b.binary(Op::kMul, widened(b, gate), widened(b, up)))};
}

TEST(JoinedProducts, ResultsOfOneFirstOperandAreOneKernel) {
  const Plan plan = testing::right_plan(program_of(5, 24, three_results), joins());
  EXPECT_EQ(families(plan), "products");
  EXPECT_EQ(plan.kernels[0].graph.outputs().size(), 3u);
}

TEST(JoinedProducts, AGateIsNotStored) {
  const Plan plan = testing::right_plan(program_of(5, 24, gated), joins());
  EXPECT_EQ(families(plan), "products");
  EXPECT_EQ(plan.kernels[0].graph.outputs().size(), 1u);
}

// Heads are columns of the products and an axis of what reads them.
TEST(JoinedProducts, ResultsThatAreReadInAnotherOrderJoinToo) {
  const auto scores = [](GraphBuilder& b, NodeId x) {
    const auto heads = [&] {
      return b.permute(b.reshape(rounded(b, linear(b, x, 32)), {6, 4, 8}), {1, 0, 2});
    };
    const NodeId queries = heads(), keys = heads();
    return std::vector<NodeId>{rounded(b, b.matmul(queries, b.permute(keys, {0, 2, 1})))};
  };
  const Plan plan = testing::right_plan(program_of(6, 24, scores), joins());
  EXPECT_EQ(families(plan), "products matmul");
}

TEST(JoinedProducts, AreAMatterOfTheTarget) {
  EXPECT_EQ(families(testing::right_plan(program_of(5, 24, three_results))),
            "matmul matmul matmul");
}

TEST(JoinedProducts, MoreRowsThanTheTargetJoinsStayApart) {
  const Graph graph = program_of(17, 24, three_results);
  EXPECT_EQ(families(testing::right_plan(graph, joins(16))), "matmul matmul matmul");
  EXPECT_EQ(families(testing::right_plan(graph, joins(17))), "products");
}

// The second product needs, by way of a reduction, what the first one gives.
TEST(JoinedProducts, NoneWaitsForTheOther) {
  const auto chain = [](GraphBuilder& b, NodeId x) {
    const NodeId first = rounded(b, linear(b, x, 32));
    const NodeId sums = b.reduce(Op::kReduceSum, widened(b, first), {1});
    const NodeId spread = b.broadcast(b.reshape(sums, {5, 1}), {5, 16});
    return std::vector<NodeId>{rounded(b, b.binary(Op::kAdd, linear(b, x, 16), spread))};
  };
  const std::string made = families(testing::right_plan(program_of(5, 24, chain), joins()));
  EXPECT_EQ(made.find("products"), std::string::npos) << made;
}

// Each alone fills a device several times. A gate joins all the same: it is neither stored nor read.
TEST(JoinedProducts, LargeResultsStayApartAndLargeGatesJoin) {
  const auto plan_of = [](const Outputs& outputs) {
    return families(*plan(normalise(program_of(4096, 64, outputs))->graph, joins()));
  };
  const auto results = [](GraphBuilder& b, NodeId x) {
    return std::vector<NodeId>{rounded(b, linear(b, x, 4096)), rounded(b, linear(b, x, 4096))};
  };
  const auto gate = [](GraphBuilder& b, NodeId x) {
    const NodeId y = b.unary(Op::kTanh, linear(b, x, 4096));
    return std::vector<NodeId>{rounded(b, b.binary(Op::kMul, y, linear(b, x, 4096)))};
  };
  EXPECT_EQ(plan_of(results), "matmul matmul");
  EXPECT_EQ(plan_of(gate), "products");
}

// What the family's rules say of products that are one kernel; "": they are one.
std::string objection(int64_t depth, const Outputs& outputs) {
  const auto made = make_workload(program_of(5, depth, outputs));
  return made ? "" : made.error().message;
}

TEST(JoinedProducts, TheRulesSayWhatStandsAgainstThem) {
  EXPECT_EQ(objection(24, three_results), "");
  EXPECT_NE(objection(20, three_results).find("do not lie in lines"), std::string::npos);
  EXPECT_NE(
      objection(
          24,
          [](GraphBuilder& b, NodeId x) {
            return std::vector<NodeId>{rounded(b, linear(b, x, 12)), rounded(b, linear(b, x, 16))};
          })
          .find("halves in whole 16 bytes"),
      std::string::npos);
  EXPECT_NE(
      objection(24,
                [](GraphBuilder& b, NodeId x) {
                  const NodeId by_columns = b.matmul(x, b.input(DType::kBF16, {24, 16}));
                  return std::vector<NodeId>{rounded(b, linear(b, x, 16)), rounded(b, by_columns)};
                })
          .find("does not lie in lines"),
      std::string::npos);
  EXPECT_NE(
      objection(24,
                [](GraphBuilder& b, NodeId x) {
                  const NodeId two = b.binary(Op::kAdd, linear(b, x, 16), linear(b, x, 16));
                  return std::vector<NodeId>{rounded(b, b.binary(Op::kMul, two, linear(b, x, 16)))};
                })
          .find("more than two"),
      std::string::npos);
}

TEST(JoinedProducts, HaveLinesThatLieEquallyFarApart) {
  const auto parts = [](GraphBuilder& b, NodeId x) {
    const NodeId slice = b.slice(b.input(DType::kBF16, {16, 48}), 1, 0, 24, 1);
    return std::vector<NodeId>{rounded(b, linear(b, x, 16)),
                               rounded(b, b.matmul(x, b.permute(slice, {1, 0})))};
  };
  EXPECT_NE(objection(24, parts).find("lines of several lengths"), std::string::npos);
}

}  // namespace
}  // namespace kiln
