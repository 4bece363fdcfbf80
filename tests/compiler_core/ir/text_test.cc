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
  const NodeId image = b.input(DType::kF32, {2, 4, 5, 6}),
               taps = b.input(DType::kF32, {6, 2, 3, 1});
  const NodeId image2 = b.convolution(image, taps, {{2, 1}, {1, 3}, {0, 2}, {1, 0}, 2});
  const NodeId powers = b.reduce(Op::kReduceProd, image2, {0, 3});
  const NodeId updates = b.input(DType::kBF16, {3, 8});
  std::vector<NodeId> outputs = {sum, joined, counted, nan, x, sum, powers};
  for (const Combine combine :
       {Combine::kSet, Combine::kAdd, Combine::kMul, Combine::kMax, Combine::kMin})
    outputs.push_back(b.scatter(y, index, updates, combine));
  outputs.push_back(b.argsort(image, true));
  outputs.push_back(b.argsort(y, false));
  const NodeId seed = b.input(DType::kI64, {});
  outputs.push_back(b.philox(seed, {3, 5}, 0));
  outputs.push_back(b.philox(seed, {7}, INT64_MAX));
  auto graph = b.finish(std::move(outputs));
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

TEST(Text, AttributesOfTheNewOpsAreChecked) {
  const std::string head =
      "kiln.graph 1\n%0 = input 0 : f32[1,2,5]\n%1 = input 1 : f32[3,2,2]\n"
      "%2 = input 2 : i64[]\n%3 = input 3 : i64[4]\n%4 = input 4 : f32[4,2,5]\n";
  const auto parses = [&](const std::string& node) {
    const auto parsed = parse_graph(head + "%5 = " + node + "\nreturn %5\n");
    EXPECT_TRUE(parsed || parsed.error().code == Code::kInvalidArgument) << node;
    return parsed.has_value();
  };
  const std::string convolution = "convolution %0 %1 stride=[1] dilation=[1] low=[0] high=[0] ";
  EXPECT_TRUE(parses(convolution + "groups=1 : f32[1,3,4]"));
  EXPECT_FALSE(parses(convolution + "groups=1 : f32[1,3,5]"));
  EXPECT_FALSE(parses(convolution + "groups=1 : bf16[1,3,4]"));
  EXPECT_FALSE(parses(convolution + "groups=0 : f32[1,3,4]"));
  EXPECT_FALSE(parses(convolution + ": f32[1,3,4]"));
  EXPECT_FALSE(parses(
      "convolution %0 %1 stride=[9223372036854775807] dilation=[1] low=[0] high=[0] groups=1 : "
      "f32[1,3,1]"));
  EXPECT_FALSE(
      parses("convolution %0 %1 stride=[s0] dilation=[1] low=[0] high=[0] groups=1 : f32[1,3,4]"));
  EXPECT_TRUE(parses("scatter %0 %3 %4 combine=add : f32[1,2,5]"));
  EXPECT_FALSE(parses("scatter %0 %3 %4 combine=xor : f32[1,2,5]"));
  EXPECT_FALSE(parses("scatter %0 %3 %0 combine=add : f32[1,2,5]"));
  EXPECT_FALSE(parses("scatter %0 %4 %3 combine=add : f32[1,2,5]"));
  EXPECT_TRUE(parses("argsort %0 descending=1 : i64[1,2,5]"));
  EXPECT_FALSE(parses("argsort %0 descending=2 : i64[1,2,5]"));
  EXPECT_FALSE(parses("argsort %2 descending=1 : i64[]"));
  EXPECT_FALSE(parses("argsort %0 descending=1 : i32[1,2,5]"));
  EXPECT_TRUE(parses("philox %2 stream=3 : i64[2,2]"));
  EXPECT_FALSE(parses("philox %2 stream=-1 : i64[2,2]"));
  EXPECT_FALSE(parses("philox %3 stream=0 : i64[2,2]"));
  EXPECT_FALSE(parses("philox %2 stream=0 : f32[2,2]"));
  EXPECT_TRUE(parses("reduce_prod %0 axes=[1] : f32[1,5]"));
  EXPECT_FALSE(parses("reduce_prod %0 axes=[3] : f32[1,2,5]"));
  EXPECT_FALSE(parses("custom_call %0 call=00 : f32[1,2,5]"));
  EXPECT_FALSE(parses("custom_call %0 : f32[1,2,5]"));
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

TEST(Text, ContradictoryRangesAndSymbolsBeforeTheirDeclarationAreRefusedByLineAndName) {
  const auto refusal = [](const std::string& lines) {
    const auto graph = parse_graph("kiln.graph 1\n" + lines);
    EXPECT_FALSE(graph);
    if (graph) return std::string();
    EXPECT_EQ(graph.error().code, Code::kInvalidArgument);
    return graph.error().message;
  };
  EXPECT_EQ(refusal("s0 = symbol 8..4 hint 4\n"), "line 2: the range of s0 is empty: 8..4");
  EXPECT_EQ(refusal("s0 = symbol 1..4 hint 4\ns0 = symbol 8..16 hint 8\n"),
            "line 3: s0 has a range already");
  const std::string input = "%0 = input 0 : f32[s0]\n";
  const std::string late = refusal(input + "s0 = symbol 1..4 hint 4\nreturn %0\n");
  EXPECT_NE(late.find("line 2"), std::string::npos) << late;
  EXPECT_NE(late.find("symbol s0 is not declared before it is used"), std::string::npos) << late;
  const std::string other = refusal("s0 = symbol 1..4 hint 4\n" + input +
                                    "%1 = view %0 strides=[1] offset=[0] : f32[s1]\nreturn %1\n");
  EXPECT_NE(other.find("line 4"), std::string::npos) << other;
  EXPECT_NE(other.find("symbol s1 is not declared before it is used"), std::string::npos) << other;
}

}  // namespace
}  // namespace kiln
