// Normal form is a fixed point, through its text: a service that reads the graph which a client sent
// finds the digest under which it was sent.
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "compiler_core/ir/text.h"
#include "compiler_core/passes/normalise.h"
#include "tests/compiler_core/passes/graph_from_bytes.h"
#include "tests/compiler_core/passes/random_graph.h"

namespace kiln {
namespace {

void expect_fixed(const Graph& graph) {
  const auto form = normalise(graph);
  ASSERT_TRUE(form.has_value()) << form.error().message << "\n" << print(graph);
  const auto read = parse_graph(print(form->graph));
  ASSERT_TRUE(read.has_value()) << read.error().message << "\n" << print(form->graph);
  const auto again = normalise(*read);
  ASSERT_TRUE(again.has_value()) << again.error().message;
  ASSERT_EQ(form->digest, again->digest) << print(graph) << "once:\n"
                                         << print(form->graph) << "twice:\n"
                                         << print(again->graph);
}

TEST(FixedPoint, GraphsOfEveryOp) {
  std::set<Op> met;
  for (uint64_t seed = 0; seed < 800; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::string bytes = testing::random_bytes(seed, 40 + seed % 160);
    const auto graph =
        testing::graph_from_bytes({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    ASSERT_TRUE(graph.has_value()) << graph.error().message;
    for (const Node& node : graph->nodes()) met.insert(node.op);
    ASSERT_NO_FATAL_FAILURE(expect_fixed(*graph));
  }
  EXPECT_EQ(met.size(), static_cast<size_t>(kOpCount - 1)) << "all but custom calls";
}

TEST(FixedPoint, RandomGraphsOfBothKinds) {
  for (uint64_t seed = 0; seed < 400; ++seed)
    for (const auto kinds : {testing::Kinds::kExact, testing::Kinds::kSmooth})
      ASSERT_NO_FATAL_FAILURE(expect_fixed(testing::random_graph(seed, kinds, 16)));
}

// Masks of more elements together than are evaluated, each a different one: which are folded must
// not depend on the order of nodes, and folding some leaves room for others.
TEST(FixedPoint, ConstantsBeyondWhatIsEvaluated) {
  GraphBuilder b;
  const std::array<int, 1> rows = {0}, columns = {1};
  std::vector<NodeId> outputs;
  const NodeId x = b.input(DType::kI64, {200, 200});
  const NodeId iota = b.iota(DType::kI64, 200);
  for (int i = 0; i < 60; ++i) {
    const NodeId shift = b.broadcast(b.constant_int(DType::kI64, i * i), {200, 200});
    const NodeId row = b.binary(Op::kAdd, b.broadcast_in(iota, {200, 200}, rows), shift);
    const NodeId from = b.binary(Op::kSub, row, b.broadcast_in(iota, {200, 200}, columns));
    outputs.push_back(b.binary(Op::kMul, x, b.slice(b.slice(from, 0, 0, 200), 1, 0, 200)));
  }
  const auto graph = b.finish(std::move(outputs));
  ASSERT_TRUE(graph.has_value());
  expect_fixed(*graph);
}

// An unrolled recurrence: every step reads its slice of one computed value, and all steps together
// are more readings than views are sunk for.
Graph recurrence(int steps) {
  GraphBuilder b;
  const NodeId rate = b.unary(Op::kExp, b.input(DType::kF32, {4, steps, 3}));
  const NodeId fed = b.unary(Op::kTanh, b.input(DType::kF32, {4, steps, 3}));
  const auto at = [&](NodeId x, int step) { return b.reshape(b.slice(x, 1, step, 1), {4, 3}); };
  NodeId state = at(fed, 0);
  std::vector<NodeId> states;
  for (int i = 1; i < steps; ++i) {
    state = b.binary(Op::kAdd, b.binary(Op::kMul, at(rate, i), state), at(fed, i));
    states.push_back(b.reshape(state, {4, 1, 3}));
  }
  return *b.finish({b.concat(states, 1)});
}

TEST(FixedPoint, AnUnrolledRecurrenceStaysInProportion) {
  for (const int steps : {64, 65, 300, 1000}) {
    const Graph graph = recurrence(steps);
    const auto form = normalise(graph);
    ASSERT_TRUE(form.has_value());
    EXPECT_LT(form->graph.size(), 2 * graph.size()) << steps;
    expect_fixed(graph);
  }
}

// What a pass does for twice the graph is twice as much: counted in nodes over all passes.
TEST(FixedPoint, WorkGrowsWithTheGraph) {
  const auto work = [](int steps) {
    int64_t nodes = 0;
    EXPECT_TRUE(normalise(recurrence(steps),
                          [&](std::string_view, const Graph& graph) { nodes += graph.size(); }));
    return static_cast<double>(nodes);
  };
  const double one = work(200), two = work(400), four = work(800);
  EXPECT_LT(two, 2.2 * one);
  EXPECT_LT(four, 2.2 * two);
}

}  // namespace
}  // namespace kiln
