// Sums of padded parts, as the gradient of a split has them.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/interpreter.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/passes/normalise.h"

namespace kiln {
namespace {

// A part of axis 0, [begin, begin + size) of `whole`, padded with `fill`.
NodeId padded(GraphBuilder& b, DType dtype, int64_t begin, int64_t size, int64_t whole,
              double fill = 0) {
  const NodeId x = b.input(dtype, {Dim(size), Dim(3)});
  return b.pad(x, {Dim(begin), Dim(0)}, {Dim(whole - begin - size), Dim(0)},
               ConstantAttr{std::bit_cast<uint64_t>(fill)});
}

NodeId sum(GraphBuilder& b, NodeId x, NodeId y) {
  return b.binary(Op::kAdd, x, y);
}

int count(const Graph& graph, Op op) {
  int found = 0;
  for (NodeId id = 0; id < graph.size(); ++id) found += graph.node(id).op == op;
  return found;
}

Graph normal_form(GraphBuilder& b, NodeId result) {
  const auto graph = b.finish({result});
  EXPECT_TRUE(graph.has_value());
  const auto form = normalise(*graph);
  EXPECT_TRUE(form.has_value());
  return form->graph;
}

TEST(JoinedPads, PartsThatCoverAnAxisAreOneAfterTheOther) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI64}) {
    GraphBuilder b;
    const NodeId first = padded(b, dtype, 0, 2, 6), last = padded(b, dtype, 3, 3, 6),
                 middle = padded(b, dtype, 2, 1, 6);
    const Graph graph = normal_form(b, sum(b, sum(b, first, last), middle));
    EXPECT_EQ(count(graph, Op::kPad), 0) << print(graph);
    EXPECT_EQ(count(graph, Op::kConcat), 1) << print(graph);
  }
}

TEST(JoinedPads, OthersAreAddedUp) {
  const auto pads_of = [](const std::function<NodeId(GraphBuilder&)>& build) {
    GraphBuilder b;
    const NodeId result = build(b);
    return count(normal_form(b, result), Op::kPad);
  };
  const DType f32 = DType::kF32;
  EXPECT_EQ(pads_of([&](GraphBuilder& b) {
              return sum(b, padded(b, f32, 0, 3, 6), padded(b, f32, 2, 4, 6));
            }),
            2)
      << "they overlap";
  EXPECT_EQ(pads_of([&](GraphBuilder& b) {
              return sum(b, padded(b, f32, 0, 3, 6), padded(b, f32, 4, 2, 6));
            }),
            2)
      << "nothing is between them";
  EXPECT_EQ(pads_of([&](GraphBuilder& b) {
              return sum(b, padded(b, f32, 0, 3, 6), padded(b, f32, 3, 2, 6));
            }),
            2)
      << "nothing is behind them";
  EXPECT_EQ(pads_of([&](GraphBuilder& b) {
              return sum(b, padded(b, f32, 0, 3, 6), padded(b, f32, 3, 3, 6, 1));
            }),
            2)
      << "what is around one counts";
  EXPECT_EQ(pads_of([&](GraphBuilder& b) {
              const NodeId rounded =
                  b.cast(sum(b, padded(b, f32, 0, 2, 6), padded(b, f32, 2, 2, 6)), DType::kBF16);
              return sum(b, b.cast(rounded, f32), padded(b, f32, 4, 2, 6));
            }),
            3)
      << "some are rounded";
}

TEST(JoinedPads, SumsHaveNoNegativeZero) {
  GraphBuilder b;
  const NodeId result = sum(b, padded(b, DType::kF32, 0, 1, 2), padded(b, DType::kF32, 1, 1, 2));
  const Graph graph = normal_form(b, result);
  Tensor zeros(DType::kF32, {1, 3});
  for (int64_t i = 0; i < 3; ++i) zeros.set(i, -0.0);
  const std::vector<const Tensor*> inputs = {&zeros, &zeros};
  const auto outputs = interpret(graph, inputs);
  ASSERT_TRUE(outputs.has_value());
  for (int64_t i = 0; i < 6; ++i) EXPECT_FALSE(std::signbit((*outputs)[0].get(i)));
}

}  // namespace
}  // namespace kiln
