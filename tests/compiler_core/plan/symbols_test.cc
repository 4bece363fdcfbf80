// Plans of graphs whose sizes come at run time: one plan, right for every size.
#include <gtest/gtest.h>

#include <set>

#include "compiler_core/ir/builder.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/sizes.h"
#include "tests/compiler_core/passes/random_graph.h"
#include "tests/compiler_core/plan/run_plan.h"

namespace kiln {
namespace {

constexpr DType kF64 = DType::kF64;  // reassociation stays far below any tolerance

class SizedProgram : public GraphBuilder {
 public:
  Dim size(int64_t min, int64_t max, int64_t hint) { return Dim::symbol(symbol({min, max}, hint)); }
  NodeId with(Op op, NodeId a, NodeId b) { return binary(op, a, broadcast(b, Shape(shape(a)))); }
  NodeId softmax(NodeId x) {
    const int axis = static_cast<int>(shape(x).size()) - 1;
    const NodeId e = unary(Op::kExp, with(Op::kSub, x, reduce(Op::kReduceMax, x, {axis}, true)));
    return with(Op::kDiv, e, reduce(Op::kReduceSum, e, {axis}, true));
  }
  NodeId relu(NodeId x) {
    return binary(Op::kMax, x, broadcast(constant(dtype(x), 0), Shape(shape(x))));
  }
  NormalForm done(std::vector<NodeId> outputs) {
    auto graph = finish(std::move(outputs));
    EXPECT_TRUE(graph) << graph.error().message;
    auto form = normalise(*graph);
    EXPECT_TRUE(form) << form.error().message;
    return *std::move(form);
  }
};

// Two layers and a softmax over [batch, 24].
NormalForm mlp() {
  SizedProgram p;
  const Dim batch = p.size(1, 4096, 31);
  const NodeId x = p.input(kF64, {batch, 24});
  const NodeId h = p.relu(p.matmul(x, p.input(kF64, {24, 40})));
  return p.done({p.softmax(p.matmul(h, p.input(kF64, {40, 10})))});
}

// Rows and columns change roles, values of different growth live side by side, and a concatenation
// makes a size that is no symbol: [rows + 1, columns].
NormalForm mixture() {
  SizedProgram p;
  const Dim rows = p.size(1, 512, 9), columns = p.size(1, 512, 12);
  const NodeId x = p.input(kF64, {rows, columns});
  const NodeId bias = p.input(kF64, {columns});
  const NodeId shifted = p.with(Op::kAdd, x, bias);
  const NodeId gram = p.matmul(shifted, p.permute(shifted, {1, 0}));  // [rows, rows]
  const NodeId means = p.reduce(Op::kReduceSum, p.unary(Op::kTanh, shifted), {0}, true);
  const NodeId joined = p.concat(std::vector{shifted, means}, 0);
  const NodeId pushed = p.matmul(p.softmax(gram), shifted);  // [rows, columns]
  return p.done({p.softmax(joined), p.permute(pushed, {1, 0}), means});
}

void expect_right(const NormalForm& form, const std::vector<std::vector<int64_t>>& sizes) {
  const auto made = plan(form.graph);
  ASSERT_TRUE(made) << made.error().message;
  for (const std::vector<int64_t>& symbols : sizes) {
    SCOPED_TRACE(::testing::PrintToString(symbols));
    std::vector<Tensor> inputs;
    std::vector<const Tensor*> pointers;
    testing::Random random(symbols[0]);
    for (NodeId id : form.graph.inputs()) {
      std::vector<int64_t> shape;
      for (const Dim& dim : form.graph.node(id).shape) shape.push_back(*dim.evaluate(symbols));
      inputs.emplace_back(kF64, shape);
      for (int64_t i = 0; i < inputs.back().numel(); ++i)
        inputs.back().set(i, static_cast<double>(testing::pick(random, -64, 64)) / 64);
    }
    for (const Tensor& input : inputs) pointers.push_back(&input);
    const auto expected = interpret(form.graph, pointers);
    ASSERT_TRUE(expected) << expected.error().message;
    const std::vector<Tensor> actual = testing::run_plan(*made, pointers, symbols);
    ASSERT_EQ(actual.size(), expected->size());
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_EQ(actual[i].sizes(), (*expected)[i].sizes());
      for (int64_t k = 0; k < actual[i].numel(); ++k)
        ASSERT_NEAR(actual[i].get(k), (*expected)[i].get(k), 1e-9) << i << " " << k;
    }
  }
}

TEST(SymbolicPlan, OnePlanOfAnMlpIsRightForEveryBatch) {
  expect_right(mlp(), {{1}, {2}, {31}, {32}, {33}, {200}});
}

TEST(SymbolicPlan, SizesThatGrowDifferentlyNeverShareMemoryWrongly) {
  const NormalForm form = mixture();
  ASSERT_EQ(form.graph.symbols().size(), 2u);
  expect_right(form, {{1, 1}, {1, 40}, {40, 1}, {9, 12}, {33, 7}, {7, 33}});
}

TEST(SymbolicPlan, HasTheKernelsOfTheSameProgramOfFixedSize) {
  const NormalForm form = mlp();
  const auto dynamic = plan(form.graph);
  const auto fixed = specialise(form.graph, std::vector<Symbol>{{{31, 31}, 31}});
  const auto constant = plan(normalise(*fixed)->graph);
  ASSERT_TRUE(dynamic && constant);
  ASSERT_EQ(dynamic->launches.size(), constant->launches.size());
  for (size_t i = 0; i < dynamic->launches.size(); ++i)
    EXPECT_EQ(dynamic->kernels[static_cast<size_t>(dynamic->launches[i].kernel)].family,
              constant->kernels[static_cast<size_t>(constant->launches[i].kernel)].family);
}

TEST(SymbolicPlan, DeclaresItsSymbolsAndSaysThemToEveryLaunch) {
  const auto made = plan(mlp().graph);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->symbols, (std::vector<ProgramSymbol>{{1, 4096, 31}}));
  for (const Launch& launch : made->launches)
    EXPECT_EQ(launch.dims, std::vector<Dim>{Dim::symbol(0)});
  Program program = program_of(*made);
  EXPECT_EQ(program.symbols, made->symbols);
  EXPECT_EQ(program.arena_bytes, made->arena_bytes);
}

TEST(SymbolicPlan, EqualLayersAreOneKernelWhicheverSymbolTheyHave) {
  SizedProgram p;
  const Dim first = p.size(1, 64, 8), second = p.size(1, 64, 16);
  const NodeId a = p.input(kF64, {first, 24}), b = p.input(kF64, {second, 24});
  const NormalForm form = p.done({p.softmax(a), p.softmax(b)});
  const auto made = plan(form.graph);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->kernels.size(), 1u);
  ASSERT_EQ(made->launches.size(), 2u);
  std::set<Dim> sizes;
  for (const Launch& launch : made->launches) sizes.insert(launch.dims.at(0));
  EXPECT_EQ(sizes, (std::set<Dim>{Dim::symbol(0), Dim::symbol(1)}));
}

TEST(SymbolicPlan, ThatWhichGrowsTogetherSharesItsMemory) {
  SizedProgram p;
  const Dim batch = p.size(1, 4096, 31);
  NodeId x = p.input(kF64, {batch, 16});
  for (int layer = 0; layer < 6; ++layer)
    x = p.unary(Op::kTanh, p.matmul(x, p.input(kF64, {16, 16})));
  const auto made = plan(p.done({x}).graph);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->arena_bytes, Dim::symbol(0) * (2 * 16 * 8));
}

TEST(Sizes, FactoredTakesOutWhatIsCommon) {
  const Dim s = Dim::symbol(0), t = Dim::symbol(1);
  const auto expect = [](const Shape& shape, int64_t number, const Dim& unit) {
    const FactoredSize size = factored(shape);
    EXPECT_EQ(size.number, number) << to_string(shape);
    EXPECT_EQ(size.unit, unit) << to_string(shape);
  };
  expect({3, 4}, 12, 1);
  expect({s * 16, 4, t}, 64, s * t);
  expect({s + Dim(1), 5}, 5, s + Dim(1));
  expect({s * 2 + Dim(2)}, 1, s * 2 + Dim(2));
  expect({0, s}, 0, s);
}

TEST(Sizes, WalkOrderFollowsStridesWithSymbols) {
  SizedProgram p;
  const Dim rows = p.size(1, 512, 9), columns = p.size(1, 512, 12);
  const NodeId x = p.input(kF64, {rows, columns, 4});
  const NodeId turned = p.permute(x, {2, 0, 1}), half = p.slice(x, 2, 0, 2);
  const auto graph = p.finish({turned, half});
  ASSERT_TRUE(graph);
  EXPECT_EQ(walk_order(*graph, graph->node(graph->outputs()[0])), (std::vector<int>{1, 2, 0}));
  EXPECT_EQ(walk_order(*graph, graph->node(graph->outputs()[1])), std::nullopt);
}

}  // namespace
}  // namespace kiln
