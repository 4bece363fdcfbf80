// Norms in front of products of few rows: which the products compute, and which stay apart.
#include "compiler_core/plan/rms_norm.h"

#include <gtest/gtest.h>

#include <functional>

#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/workload.h"
#include "tests/compiler_core/plan/rms_norm_graphs.h"
#include "tests/compiler_core/plan/run_plan.h"

namespace kiln {
namespace {

using testing::families;
using testing::linear_of;
using testing::normed;
using testing::NormWeights;

PartitionRules in_products() {
  PartitionRules rules;
  rules.most_joined_rows = PartitionRules::kAnyRows;
  rules.norms_in_products = true;
  return rules;
}

// A program of x [rows, 24] in bf16, or [rows, 1, 24].
using Results = std::function<std::vector<NodeId>(GraphBuilder&, NodeId x)>;
Graph program(int64_t rows, const Results& results, bool has_tokens = false) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kBF16, has_tokens ? Shape{rows, 1, 24} : Shape{rows, 24});
  return *b.finish(results(b, x));
}

NodeId in_halves(GraphBuilder& b, NodeId x) {
  return b.cast(x, DType::kBF16);
}
std::vector<NodeId> two_of(GraphBuilder& b, NodeId x) {
  return {in_halves(b, linear_of(b, x, 32)), in_halves(b, linear_of(b, x, 16))};
}

TEST(RmsNorms, OfEveryKindAreScaledByTheProduct) {
  for (const NormWeights weights :
       {NormWeights::kNone, NormWeights::kHalves, NormWeights::kF32, NormWeights::kOneMore}) {
    const auto one = [&](GraphBuilder& b, NodeId x) {
      return std::vector<NodeId>{in_halves(b, linear_of(b, normed(b, x, weights), 32))};
    };
    const Graph graph = program(5, one);
    EXPECT_EQ(families(testing::right_plan(graph, in_products())), "matmul")
        << static_cast<int>(weights);
    EXPECT_EQ(families(testing::right_plan(graph)), "row_reduction matmul");
  }
}

TEST(RmsNorms, ProductsOfThemAreOneKernel) {
  const auto three = [](GraphBuilder& b, NodeId x) { return two_of(b, normed(b, x)); };
  EXPECT_EQ(families(testing::right_plan(program(5, three), in_products())), "products");
  EXPECT_EQ(families(testing::right_plan(program(1, three), in_products())), "products");
}

// As a step of decoding has them: the norm is of [rows, 1, depth], the product of [rows, depth]. What is
// scaled is added to what comes of it.
TEST(RmsNorms, LayersOfAStepHaveNoKernelOfANorm) {
  const auto layers = [](GraphBuilder& b, NodeId x) {
    const Shape shape = b.shape(x);
    for (int i = 0; i < 2; ++i) {
      const NodeId rows = b.reshape(normed(b, x), {shape[0], 24});
      const NodeId gate = b.unary(Op::kTanh, linear_of(b, rows, 48));
      const NodeId hidden = in_halves(b, b.binary(Op::kMul, gate, linear_of(b, rows, 48)));
      const NodeId y =
          b.cast(in_halves(b, b.reshape(linear_of(b, hidden, 24), shape)), DType::kF32);
      x = in_halves(b, b.binary(Op::kAdd, b.cast(x, DType::kF32), y));
    }
    return std::vector<NodeId>{x};
  };
  const Graph graph = program(6, layers, true);
  EXPECT_EQ(families(testing::right_plan(graph, in_products())), "products matmul products matmul");
}

// A residual is added to the product of the same rows.
TEST(RmsNorms, AreReadByTheEpilogueToo) {
  const auto residual = [](GraphBuilder& b, NodeId x) {
    const NodeId y = linear_of(b, normed(b, x), 24);
    return std::vector<NodeId>{in_halves(b, b.binary(Op::kAdd, y, b.cast(x, DType::kF32)))};
  };
  EXPECT_EQ(families(testing::right_plan(program(5, residual), in_products())), "matmul");
}

std::string families_of(int64_t rows, const Results& results) {
  const auto made = plan(normalise(program(rows, results))->graph, in_products());
  return made ? families(*made) : made.error().message;
}

TEST(RmsNorms, StayApartWhereThatIsNotWorthIt) {
  const auto one = [](GraphBuilder& b, NodeId x) {
    return std::vector<NodeId>{in_halves(b, linear_of(b, normed(b, x), 32))};
  };
  EXPECT_EQ(families_of(kMostRmsNormRows, one), "matmul");
  EXPECT_EQ(families_of(kMostRmsNormRows + 1, one), "row_reduction matmul") << "many rows";
  const auto elsewhere = [](GraphBuilder& b, NodeId x) {
    const NodeId y = normed(b, x);
    return std::vector<NodeId>{in_halves(b, linear_of(b, y, 32)), y};
  };
  EXPECT_EQ(families_of(5, elsewhere), "row_reduction matmul") << "the rows are stored in any case";
  const auto by_depth = [](GraphBuilder& b, NodeId x) {
    const NodeId y = b.matmul(normed(b, x), b.input(DType::kBF16, {24, 32}));
    return std::vector<NodeId>{in_halves(b, y)};
  };
  EXPECT_EQ(families_of(5, by_depth), "row_reduction matmul") << "weights in another order";
  const auto shifted = [](GraphBuilder& b, NodeId x) {
    const NodeId y = b.binary(Op::kAdd, b.cast(normed(b, x), DType::kF32),
                              b.broadcast(b.input(DType::kF32, {24}), b.shape(x)));
    return std::vector<NodeId>{in_halves(b, linear_of(b, in_halves(b, y), 32))};
  };
  EXPECT_EQ(families_of(5, shifted), "row_reduction matmul")
      << "something is added behind the scale";
}

// The test makes plans of long products and wide norms, and computes none of them.
TEST(RmsNorms, StayApartFromLongProducts) {
  const auto families_of = [](int64_t depth, int64_t columns, NormWeights weights) {
    GraphBuilder b;
    const NodeId x = normed(b, b.input(DType::kBF16, {5, depth}), weights);
    const Graph graph = *b.finish({in_halves(b, linear_of(b, x, columns))});
    const auto made = plan(normalise(graph)->graph, in_products());
    return made ? families(*made) : made.error().message;
  };
  const int64_t most = kMostRmsNormOperand / 2 / 4096;
  EXPECT_EQ(families_of(4096, most, NormWeights::kHalves), "matmul");
  EXPECT_EQ(families_of(4096, most + 8, NormWeights::kHalves), "row_reduction matmul");
  const int64_t widest = kMostRmsNormWeights / 4;
  EXPECT_EQ(families_of(widest, 64, NormWeights::kF32), "matmul");
  EXPECT_EQ(families_of(widest + 8, 64, NormWeights::kF32), "row_reduction matmul");
  EXPECT_EQ(families_of(widest + 8, 64, NormWeights::kNone), "matmul");
}

// Of f16, x * w may be more than there is where x * s * w is not.
TEST(RmsNorms, StayApartInF16) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF16, {5, 24});
  const NodeId y = linear_of(b, normed(b, x), 32);
  const auto made = plan(normalise(*b.finish({b.cast(y, DType::kF16)}))->graph, in_products());
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(families(*made), "row_reduction matmul");
}

}  // namespace
}  // namespace kiln
