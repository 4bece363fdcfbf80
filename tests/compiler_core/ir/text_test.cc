#include "compiler_core/ir/text.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/verify.h"

namespace kiln {
namespace {

// A graph with every kind of node and attribute.
Graph everything() {
  GraphBuilder b;
  const Dim batch = Dim::symbol(b.symbol({1, 4096}, 32));
  const NodeId x = b.input(DType::kF32, {batch, 16});
  const NodeId y = b.input(DType::kBF16, {16, 8});
  const NodeId index = b.input(DType::kI64, {3});
  const NodeId nan = b.constant(DType::kF32, std::numeric_limits<double>::quiet_NaN());
  const NodeId least = b.constant_int(DType::kI64, INT64_MIN);
  const NodeId minus_zero = b.constant(DType::kF32, -0.0);
  const NodeId infinity = b.constant(DType::kF32, -std::numeric_limits<double>::infinity());
  const NodeId scaled =
      b.binary(Op::kMul, x, b.broadcast(b.constant(DType::kF32, 0.1), {batch, 16}));
  const NodeId positive = b.binary(Op::kLt, b.broadcast(minus_zero, {batch, 16}), scaled);
  const NodeId chosen = b.select(positive, scaled, b.broadcast(infinity, {batch, 16}));
  const NodeId half = b.cast(chosen, DType::kBF16);
  const NodeId product = b.matmul(half, y);
  const NodeId padded = b.pad(b.unary(Op::kExp, product), {Dim(0), Dim(1)}, {Dim(2), Dim(0)},
                              constant_bits(DType::kF32, 0.5));
  const NodeId sum = b.reduce(Op::kReduceSum, padded, {0, 1});
  const NodeId rows = b.gather(y, index);
  const NodeId both[] = {rows, b.slice(y, 0, 2, 3, -1)};
  const NodeId joined = b.concat(both, 1);
  const NodeId counted =
      b.binary(Op::kAdd, b.scan_sum(b.iota(DType::kI64, 5), 0), b.broadcast(least, {5}));
  auto graph = b.finish({sum, joined, counted, nan, x, sum});
  EXPECT_TRUE(graph) << graph.error().message;
  return *std::move(graph);
}

TEST(Text, RoundTripsExactly) {
  const Graph graph = everything();
  const std::string text = print(graph);
  const auto parsed = parse_graph(text);
  ASSERT_TRUE(parsed) << parsed.error().message << "\n" << text;
  EXPECT_EQ(*parsed, graph);
  EXPECT_EQ(print(*parsed), text);
  EXPECT_TRUE(verify(*parsed));
}

TEST(Text, ErrorsNameTheLine) {
  const auto error =
      parse_graph("kiln.graph 1\n%0 = input 0 : f32[4]\n%1 = exp %2 : f32[4]\nreturn %1\n");
  ASSERT_FALSE(error);
  EXPECT_EQ(error.error().code, Code::kInvalidArgument);
  EXPECT_NE(error.error().message.find("line 3"), std::string::npos) << error.error().message;
}

TEST(Text, WhatIsNoGraphIsRefused) {
  for (const char* text : {"", "hello", "kiln.graph 2\nreturn\n", "kiln.graph 1\n",
                           "kiln.graph 1\n%0 = input 1 : f32[4]\nreturn %0\n",
                           "kiln.graph 1\n%0 = input 0 : f32[-4]\nreturn %0\n",
                           "kiln.graph 1\n%0 = input 0 : f99[4]\nreturn %0\n",
                           "kiln.graph 1\n%0 = input 0 : f32[4]\nreturn %1\n",
                           "kiln.graph 1\n%0 = exp %0 : f32[4]\nreturn %0\n",
                           "kiln.graph 1\n%0 = input 0 : f32[4611686018427387904,4]\nreturn %0\n",
                           "kiln.graph 1\n%0 = input 0 : f32[s0]\nreturn %0\n",
                           "kiln.graph 1\n%0 = input 0 : f32[4]\n%1 = view %0 strides=[1] "
                           "offset=[1] : f32[4]\nreturn %1\n",
                           "kiln.graph 1\n%0 = input 0 : f32[4]\n%1 = exp %0 : f64[4]\nreturn %1\n",
                           "kiln.graph 1\n%0 = input 0 : f32[4]\nreturn %0\nreturn %0\n"}) {
    const auto parsed = parse_graph(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument) << text;
  }
}

// Seeded damage to a good text: an error or a valid graph, never a crash.
TEST(Text, SurvivesDamage) {
  const std::string good = print(everything());
  std::mt19937 random(20261120);
  constexpr std::string_view kAlphabet = "%=:[],.-+*s0123456789 axp\n\t\x7f";
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    for (unsigned edits = 1 + random() % 4; edits-- > 0;) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = kAlphabet[random() % kAlphabet.size()];
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 12));
      }
      if (text.empty()) text = " ";
    }
    const auto parsed = parse_graph(text);
    EXPECT_TRUE(!parsed || verify(*parsed)) << text;
  }
}

}  // namespace
}  // namespace kiln
