// What becomes of values that depend on no input.
#include "compiler_core/passes/passes.h"

#include <gtest/gtest.h>

#include "compiler_core/ir/text.h"
#include "compiler_core/ir/verify.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/passes/rewrite.h"
#include "tests/compiler_core/passes/random_graph.h"

namespace kiln {
namespace {

using namespace testing;  // NOLINT: this project's own

std::string folded(const std::string& body) {
  const auto graph = parse_graph("kiln.graph 1\n" + body);
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  const auto after = fold_constants(*graph);
  EXPECT_TRUE(after.has_value()) << after.error().message;
  const auto live = rewrite_nodes(*after, emit);
  EXPECT_TRUE(live.has_value()) << live.error().message;
  return print(*live);
}

TEST(FoldConstants, OneNumberEverywhereIsAConstant) {
  // Neighbours of arange differ by 1, so that where they do not, nothing is summed up.
  EXPECT_EQ(folded("%0 = iota : i64[6]\n"
                   "%1 = view %0 strides=[1] offset=[1] : i64[5]\n"
                   "%2 = view %0 strides=[1] offset=[0] : i64[5]\n"
                   "%3 = sub %1 %2 : i64[5]\n"
                   "%4 = constant 1 : i64[]\n"
                   "%5 = view %4 strides=[0] offset=[0] : i64[5]\n"
                   "%6 = ne %3 %5 : bool[5]\n"
                   "%7 = cast %6 : i64[5]\n"
                   "%8 = scan_sum %7 axis=0 : i64[5]\n"
                   "return %8\n"),
            folded("%0 = constant 0 : i64[]\n"
                   "%1 = view %0 strides=[0] offset=[0] : i64[5]\n"
                   "return %1\n"));
}

TEST(FoldConstants, AffineValuesHaveOneSpelling) {
  const std::string canonical =
      "%0 = iota : i64[9]\n"
      "%1 = view %0 strides=[-4,2] offset=[4] : i64[2,3]\n"
      "%2 = constant -3 : i64[]\n"
      "%3 = view %2 strides=[0,0] offset=[0] : i64[2,3]\n"
      "%4 = add %1 %3 : i64[2,3]\n"
      "return %4\n";
  const std::string computed =
      "%0 = iota : i64[3]\n"
      "%1 = view %0 strides=[0,1] offset=[0] : i64[2,3]\n"
      "%2 = iota : i64[2]\n"
      "%3 = view %2 strides=[1,0] offset=[0] : i64[2,3]\n"
      "%4 = sub %1 %3 : i64[2,3]\n"
      "%5 = sub %4 %3 : i64[2,3]\n"
      "%6 = add %5 %5 : i64[2,3]\n"
      "%7 = constant 1 : i64[]\n"
      "%8 = view %7 strides=[0,0] offset=[0] : i64[2,3]\n"
      "%9 = add %6 %8 : i64[2,3]\n"
      "return %9\n";
  EXPECT_EQ(folded(computed), folded(canonical));
  EXPECT_NE(folded(computed).find("strides=[-4,2] offset=[4]"), std::string::npos)
      << folded(computed);
}

TEST(FoldConstants, OthersStay) {
  for (const std::string body :
       {"%0 = iota : i64[4]\n%1 = mul %0 %0 : i64[4]\nreturn %1\n",     // not affine
        "%0 = iota : f32[4]\n%1 = cos %0 : f32[4]\nreturn %1\n",        // floats that vary
        "%0 = input 0 : i64[4]\n%1 = sub %0 %0 : i64[4]\nreturn %1\n",  // of an input
        "%0 = constant 3 : i64[]\n%1 = philox %0 stream=0 : i64[4]\nreturn %1\n",  // random
        "%0 = iota : i64[70000]\n%1 = sub %0 %0 : i64[70000]\nreturn %1\n"}) {     // large
    const auto graph = parse_graph("kiln.graph 1\n" + body);
    ASSERT_TRUE(graph.has_value()) << graph.error().message;
    EXPECT_EQ(folded(body), print(*graph));
  }
}

TEST(FoldConstants, WhatIsUnspecifiedIsNotDecidedHere) {
  const std::string by_zero =
      "kiln.graph 1\n%0 = iota : i64[1]\n%1 = div %0 %0 : i64[1]\n%2 = add %1 %1 : i64[1]\n"
      "return %2\n";
  EXPECT_NE(folded(by_zero.substr(13)).find("div"), std::string::npos);
}

TEST(FoldConstants, ElementsOfAllAreBounded) {
  GraphBuilder b;
  NodeId x = b.iota(DType::kI64, 1 << 16);
  const int links = 5000;  // evaluated in full: minutes
  for (int i = 0; i < links; ++i) x = b.binary(Op::kMul, x, x);
  const auto graph = b.finish({x});
  ASSERT_TRUE(graph.has_value());
  const auto after = fold_constants(*graph);
  ASSERT_TRUE(after.has_value());
  EXPECT_EQ(after->size(), links + 1);
}

// `graph` with numbers that are known in place of its inputs.
Graph without_inputs(const Graph& graph, Random& random) {
  GraphBuilder b;
  std::vector<NodeId> map;
  for (const Node& node : graph.nodes()) {
    std::vector<NodeId> operands;
    for (NodeId id : node.operands) operands.push_back(map[static_cast<size_t>(id)]);
    if (node.op != Op::kInput) {
      map.push_back(emit(b, node, std::move(operands)));
      continue;
    }
    const int64_t size = numel(node.shape).constant();
    NodeId numbers = b.reshape(b.iota(DType::kI64, size), node.shape);
    const NodeId by = b.broadcast(b.constant_int(DType::kI64, pick(random, -2, 2)), node.shape);
    numbers = b.binary(pick(random, 0, 1) == 0 ? Op::kMul : Op::kSub, numbers, by);
    if (is_half(node.dtype)) numbers = b.cast(numbers, DType::kF32);
    map.push_back(b.cast(numbers, node.dtype));
  }
  std::vector<NodeId> outputs;
  for (NodeId id : graph.outputs()) outputs.push_back(map[static_cast<size_t>(id)]);
  auto made = b.finish(std::move(outputs));
  EXPECT_TRUE(made.has_value()) << made.error().message;
  return made ? *std::move(made) : Graph();
}

TEST(FoldConstants, KeepsEveryBitAndEverySpellingMeets) {
  Random random(5);
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Graph graph = without_inputs(random_graph(seed, Kinds::kExact, 12), random);
    const auto after = fold_constants(graph);
    ASSERT_TRUE(after.has_value()) << after.error().message;
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + print(graph) + print(*after));
    ASSERT_TRUE(verify(*after).has_value());
    const auto expected = evaluate(graph, {}), actual = evaluate(*after, {});
    ASSERT_EQ(expected.size(), actual.size());
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NO_FATAL_FAILURE(expect_equal(expected[i], actual[i], 0));
    const auto form = normalise(graph), other = normalise(respell(graph, seed + 1).graph);
    ASSERT_TRUE(form.has_value() && other.has_value());
    // Which zero min and max give of two depends on which comes first.
    if (print(form->graph).find("-0x0p+0") != std::string::npos) continue;
    if (print(other->graph).find("-0x0p+0") != std::string::npos) continue;
    ASSERT_EQ(form->digest, other->digest) << print(form->graph) << print(other->graph);
  }
}

}  // namespace
}  // namespace kiln
