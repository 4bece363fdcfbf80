#include "compiler_core/passes/specialise.h"

#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/passes/normalise.h"

namespace kiln {
namespace {

// exp(x) of [rows, columns], reshaped flat and padded by one row.
Graph flat_exp() {
  GraphBuilder builder;
  const Dim rows = Dim::symbol(builder.symbol({1, 4096}, 31));
  const Dim columns = Dim::symbol(builder.symbol({1, 64}, 8));
  const NodeId x = builder.input(DType::kF32, {rows, columns});
  const NodeId unused = builder.input(DType::kF32, {columns});
  static_cast<void>(unused);
  const NodeId padded =
      builder.pad(builder.unary(Op::kExp, x), {1, 0}, {0, 0}, constant_bits(DType::kF32, 0));
  auto graph = builder.finish({builder.reshape(padded, {(rows + Dim(1)) * columns})});
  EXPECT_TRUE(graph) << graph.error().message;
  return *graph;
}

TEST(Specialise, NarrowsRangesAndKeepsEverythingElse) {
  const Graph graph = flat_exp();
  const std::vector<Symbol> narrow = {{{1, 16}, 4}, {{1, 64}, 8}};
  const auto made = specialise(graph, narrow);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->symbols()[0], narrow[0]);
  EXPECT_TRUE(std::equal(made->nodes().begin(), made->nodes().end(), graph.nodes().begin(),
                         graph.nodes().end()));
  EXPECT_NE(normalise(*made)->digest, normalise(graph)->digest);
}

TEST(Specialise, ARangeOfOneValueBecomesTheConstant) {
  const std::vector<Symbol> fixed = {{{31, 31}, 31}, {{1, 64}, 8}};
  const auto made = specialise(flat_exp(), fixed);
  ASSERT_TRUE(made) << made.error().message;
  ASSERT_EQ(made->symbols().size(), 1u);
  const Dim columns = Dim::symbol(0);
  EXPECT_EQ(made->node(made->inputs()[0]).shape, (Shape{31, columns}));
  EXPECT_EQ(made->node(made->inputs()[1]).shape, Shape{columns}) << "unused inputs stay";
  EXPECT_EQ(made->node(made->outputs()[0]).shape, Shape{columns * 32});
}

TEST(Specialise, TheHintIsInNoDigest) {
  const std::vector<Symbol> one = {{{1, 16}, 4}, {{1, 64}, 8}},
                            other = {{{1, 16}, 5}, {{1, 64}, 9}};
  EXPECT_EQ(normalise(*specialise(flat_exp(), one))->digest,
            normalise(*specialise(flat_exp(), other))->digest);
}

TEST(Specialise, RefusesRangesThatReachOutside) {
  const auto refused = [](const std::vector<Symbol>& symbols) {
    const auto made = specialise(flat_exp(), symbols);
    return !made && made.error().code == Code::kInvalidArgument;
  };
  EXPECT_TRUE(refused({{{1, 4097}, 4}, {{1, 64}, 8}}));
  EXPECT_TRUE(refused({{{0, 16}, 4}, {{1, 64}, 8}}));
  EXPECT_TRUE(refused({{{9, 8}, 8}, {{1, 64}, 8}}));
  EXPECT_TRUE(refused({{{1, 16}, 4}}));
}

TEST(CutRange, CutsBetweenHintsAtTheirGeometricMean) {
  const Symbol batch{{1, 4096}, 7};
  const auto parts = cut_range(batch, {512, 1, 32, 32});
  ASSERT_TRUE(parts);
  EXPECT_EQ(*parts, (std::vector<Symbol>{{{1, 5}, 1}, {{6, 128}, 32}, {{129, 4096}, 512}}));
  EXPECT_EQ(*cut_range(batch, {}), std::vector<Symbol>{batch});
  EXPECT_EQ(*cut_range(batch, {64}), (std::vector<Symbol>{{{1, 4096}, 64}}));
  EXPECT_EQ(*cut_range(batch, {1, 2}), (std::vector<Symbol>{{{1, 1}, 1}, {{2, 4096}, 2}}));
}

TEST(CutRange, RefusesAHintOutside) {
  const auto parts = cut_range({{1, 4096}, 7}, {32, 5000});
  ASSERT_FALSE(parts);
  EXPECT_EQ(parts.error().code, Code::kInvalidArgument);
  EXPECT_NE(parts.error().message.find("5000"), std::string::npos) << parts.error().message;
  EXPECT_FALSE(cut_range({{1, 4096}, 7}, {0}));
}

}  // namespace
}  // namespace kiln
