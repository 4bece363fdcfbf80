// Where a node came from survives every pass down to the kernels.
#include <gtest/gtest.h>

#include <set>

#include "compiler_core/ir/builder.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/partition.h"

namespace kiln {
namespace {

constexpr DType kBF16 = DType::kBF16;

std::set<std::string> ops_of(const Graph& graph, const std::vector<NodeId>& nodes) {
  std::set<std::string> ops;
  for (const NodeId id : nodes)
    if (const OriginId origin = graph.origin_of(id); origin != kNoOrigin)
      ops.insert(graph.origins()[static_cast<size_t>(origin)].op);
  return ops;
}

// Softmax in halves of what was transposed, times a matrix.
Graph program() {
  GraphBuilder b;
  const NodeId x = b.input(kBF16, {64, 32}), w = b.input(kBF16, {64, 16});
  b.begin_origin({"transpose", "", ""});
  const NodeId t = b.permute(x, {1, 0});
  b.begin_origin({"softmax", "", ""});
  const NodeId e = b.unary(Op::kExp, t);
  const NodeId sum = b.reduce(Op::kReduceSum, e, {1}, true);
  const NodeId p = b.binary(Op::kDiv, e, b.broadcast(sum, {32, 64}));
  b.begin_origin({"mm", "", ""});
  const NodeId product = b.cast(b.matmul(p, w), kBF16);
  b.begin_origin({"tanh", "", ""});
  return b.finish({b.unary(Op::kTanh, product)}).value();
}

TEST(Origins, SurviveNormalisationAndPartition) {
  const auto form = normalise(program());
  ASSERT_TRUE(form.has_value()) << form.error().message;
  const auto parts = partition(form->graph);
  ASSERT_TRUE(parts.has_value()) << parts.error().message;
  ASSERT_EQ(parts->kernels.size(), 2u);
  const auto of = [&](size_t k) { return ops_of(parts->graph, parts->kernels[k].computed); };
  EXPECT_EQ(of(0), (std::set<std::string>{"softmax", "transpose"}));
  EXPECT_EQ(of(1), (std::set<std::string>{"mm", "tanh"}));
}

TEST(Origins, EveryComputedNodeHasOne) {
  const auto parts = partition(normalise(program())->graph);
  ASSERT_TRUE(parts.has_value());
  for (const FusedKernel& kernel : parts->kernels)
    for (const NodeId id : kernel.computed)
      EXPECT_NE(parts->graph.origin_of(id), kNoOrigin) << to_string(parts->graph.node(id).op);
}

}  // namespace
}  // namespace kiln
