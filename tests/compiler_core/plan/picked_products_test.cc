// Mixtures of experts as plans: rows with the matrix that an index picks, shared by neighbours or read
// in place.
#include "compiler_core/plan/picked_products.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/passes/normalise.h"
#include "tests/compiler_core/plan/run_plan.h"

namespace kiln {
namespace {

struct Sizes {
  int64_t rows, k, n, matrices;
};

// How many of `ends` are at most each row's number, so that it is the number of the row's group.
NodeId group_of_rows(GraphBuilder& b, NodeId ends, const Sizes& s) {
  const Shape shape = {s.rows, s.matrices};
  const NodeId row = b.broadcast(b.reshape(b.iota(DType::kI64, s.rows), {s.rows, 1}), shape);
  const NodeId bound = b.broadcast(b.reshape(ends, {1, s.matrices}), shape);
  const NodeId passed = b.cast(b.binary(Op::kLe, bound, row), DType::kI64);
  const NodeId most = b.constant_int(DType::kI64, s.matrices - 1);
  return b.binary(Op::kMin, b.reduce(Op::kReduceSum, passed, {1}), b.broadcast(most, {s.rows}));
}

// silu(x W) or x W of each row's own matrix; input 0 is what the groups are of: bounds, or indices.
Graph experts(const Sizes& s, bool by_bounds, DType dtype = DType::kBF16) {
  GraphBuilder b;
  const NodeId given = b.input(DType::kI64, {by_bounds ? s.matrices : s.rows});
  const NodeId index = by_bounds ? group_of_rows(b, given, s) : given;
  const NodeId x = b.input(dtype, {s.rows, s.k}), table = b.input(dtype, {s.matrices, s.k, s.n});
  const NodeId product = b.matmul(b.reshape(x, {s.rows, 1, s.k}), b.gather(table, index));
  const NodeId y = b.unary(Op::kTanh, b.reshape(product, {s.rows, s.n}));
  auto graph = b.finish({y});
  EXPECT_TRUE(graph) << graph.error().message;
  return normalise(*graph)->graph;
}

std::vector<Tensor> inputs_of(const Graph& graph, const std::vector<int64_t>& given) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> real(-1, 1);
  std::vector<Tensor> inputs;
  for (const NodeId id : graph.inputs()) {
    const Node& node = graph.node(id);
    Tensor& tensor = inputs.emplace_back(node.dtype, constant_sizes(node.shape));
    for (int64_t i = 0; i < tensor.numel(); ++i)
      if (!is_float(node.dtype))
        tensor.set_int(i, given[static_cast<size_t>(i)]);
      else
        tensor.set(i, real(random));
  }
  return inputs;
}

void expect_right(const Graph& graph, const std::vector<int64_t>& given, bool in_place) {
  const std::vector<Tensor> inputs = inputs_of(graph, given);
  std::vector<const Tensor*> pointers;
  for (const Tensor& input : inputs) pointers.push_back(&input);
  PartitionRules rules;
  rules.picks_matrices = in_place;
  const auto made = plan(graph, rules);
  ASSERT_TRUE(made) << made.error().message;
  const auto expected = interpret(graph, pointers);
  ASSERT_TRUE(expected) << expected.error().message;
  const std::vector<Tensor> got = testing::run_plan(*made, pointers);
  for (size_t output = 0; output < got.size(); ++output)
    for (int64_t i = 0; i < got[output].numel(); ++i)
      ASSERT_NEAR(got[output].get(i), (*expected)[output].get(i), 0.02)
          << output << ", " << i << "\n"
          << print(graph);
}

// Whether a kernel of the plan has picked products, where kernels may.
bool reads_in_place(const Graph& graph) {
  PartitionRules rules;
  rules.picks_matrices = true;
  const auto made = plan(graph, rules);
  EXPECT_TRUE(made) << made.error().message;
  return made && std::ranges::any_of(made->kernels, [](const Workload& kernel) {
           return std::ranges::any_of(kernel.graph.nodes(), [&](const Node& node) {
             return picked_matrices(kernel.graph, node).has_value();
           });
         });
}

// The elements of the largest buffer that kernels pass to one another.
int64_t largest_temporary(const Graph& graph, bool in_place) {
  PartitionRules rules;
  rules.picks_matrices = in_place;
  const auto made = plan(graph, rules);
  EXPECT_TRUE(made) << made.error().message;
  int64_t most = 0;
  for (const Buffer& buffer : made->buffers)
    if (buffer.kind == Buffer::Kind::kTemporary)
      most = std::max(most, numel(Shape(buffer.spec.shape)).constant());
  return most;
}

TEST(PickedProducts, AgreeHoweverRowsAreSharedOut) {
  const Graph graph = experts({90, 64, 72, 5}, true);
  for (const bool in_place : {false, true})
    for (const auto& ends : {std::vector<int64_t>{18, 36, 54, 72, 90},
                             {0, 50, 50, 90, 90},
                             {90, 90, 90, 90, 90},
                             {0, 0, 0, 0, 90},
                             {1, 2, 3, 4, 60}})
      expect_right(graph, ends, in_place);
}

TEST(PickedProducts, AgreeForFewRowsAndManyOfThem) {
  expect_right(experts({3, 64, 64, 8}, true), {0, 1, 1, 1, 2, 2, 3, 3}, false);
  expect_right(experts({3, 64, 64, 8}, true), {0, 1, 1, 1, 2, 2, 3, 3}, true);
  expect_right(experts({700, 16, 8, 3}, true), {300, 300, 650}, false);
}

TEST(PickedProducts, AgreeForIndicesInAnyOrder) {
  const Graph graph = experts({6, 64, 64, 4}, false);
  for (const bool in_place : {false, true}) expect_right(graph, {3, 0, 3, -1, 2, 0}, in_place);
}

TEST(PickedProducts, AMatrixIsNotCopiedForEachRow) {
  const Sizes sizes{512, 64, 128, 8};
  const Graph graph = experts(sizes, true);
  EXPECT_LE(largest_temporary(graph, false), 24 * sizes.k * sizes.n) << "a copy a block at most";
  EXPECT_LE(largest_temporary(graph, true), sizes.rows) << "the index alone";
}

TEST(PickedProducts, AreReadInPlaceWhereKernelsAreWrittenForIt) {
  EXPECT_TRUE(reads_in_place(experts({512, 64, 128, 8}, true)));
  EXPECT_TRUE(reads_in_place(experts({6, 64, 64, 4}, false)));
  EXPECT_FALSE(reads_in_place(experts({512, 64, 128, 8}, true, DType::kF32)));
  EXPECT_FALSE(reads_in_place(experts({512, 68, 128, 8}, true))) << "rows begin anywhere";
  EXPECT_FALSE(reads_in_place(experts({512, 64, 32, 8}, true))) << "less than a tile";
}

// Six rows of 64, four matrices, an index; `outputs` makes of a product what the graph returns.
template <class Outputs>
Graph six_rows(DType index_dtype, Outputs outputs) {
  GraphBuilder b;
  const NodeId index = b.cast(b.input(index_dtype, {6}), DType::kI64);
  const NodeId x = b.input(DType::kBF16, {6, 1, 64}), table = b.input(DType::kBF16, {4, 64, 64});
  auto graph = b.finish(outputs(b, x, table, index));
  EXPECT_TRUE(graph) << graph.error().message;
  return normalise(*graph)->graph;
}
using Nodes = std::vector<NodeId>;

TEST(PickedProducts, AgreeForIndicesOf32Bits) {
  const Graph graph =
      six_rows(DType::kI32, [](GraphBuilder& b, NodeId x, NodeId table, NodeId index) {
        return Nodes{b.matmul(x, b.gather(table, index))};
      });
  EXPECT_TRUE(reads_in_place(graph));
  for (const bool in_place : {false, true}) expect_right(graph, {3, 0, 0, -1, 2, 0}, in_place);
}

TEST(PickedProducts, AgreeWhereTheTableIsReadElsewhereToo) {
  const Graph graph =
      six_rows(DType::kI64, [](GraphBuilder& b, NodeId x, NodeId table, NodeId index) {
        const NodeId every = b.broadcast(b.reshape(x, {1, 6, 64}), {4, 6, 64});
        return Nodes{b.matmul(x, b.gather(table, index)), b.matmul(every, table),
                     b.unary(Op::kExp, table)};
      });
  EXPECT_TRUE(reads_in_place(graph));
  for (const bool in_place : {false, true}) expect_right(graph, {1, 1, 1, 2, 3, 3}, in_place);
}

TEST(PickedProducts, AgreeWhereTheMatricesAreAnOutputOrReadByOthersToo) {
  const Graph graph =
      six_rows(DType::kI64, [](GraphBuilder& b, NodeId x, NodeId table, NodeId index) {
        const NodeId picked = b.gather(table, index);
        return Nodes{b.matmul(x, picked), picked, b.reduce(Op::kReduceMax, picked, {1})};
      });
  for (const bool in_place : {false, true}) expect_right(graph, {1, 1, 1, 2, 3, 3}, in_place);
}

TEST(PickedProducts, AgreeForAGateAndAProductOfOneIndexAndATableThatIsComputed) {
  const Graph graph =
      six_rows(DType::kI64, [](GraphBuilder& b, NodeId x, NodeId table, NodeId index) {
        const NodeId up = b.matmul(x, b.gather(table, index));
        const NodeId gate = b.matmul(x, b.gather(b.unary(Op::kTanh, table), index));
        return Nodes{b.binary(Op::kMul, b.unary(Op::kTanh, gate), up)};
      });
  EXPECT_TRUE(reads_in_place(graph));
  for (const bool in_place : {false, true}) expect_right(graph, {0, 0, 3, 3, 3, 3}, in_place);
}

TEST(PickedProducts, OfANumberOfRowsThatIsKnownAtRunTimeAreCopied) {
  GraphBuilder b;
  const Dim rows = Dim::symbol(b.symbol({1, 100}, 6));
  const NodeId index = b.input(DType::kI64, {rows});
  const NodeId x = b.input(DType::kBF16, {rows, 1, 64});
  const NodeId table = b.input(DType::kBF16, {4, 64, 64});
  const auto graph = b.finish({b.matmul(x, b.gather(table, index))});
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_FALSE(reads_in_place(normalise(*graph)->graph));
}

}  // namespace
}  // namespace kiln
