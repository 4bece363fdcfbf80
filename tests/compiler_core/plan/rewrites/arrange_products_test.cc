// Layers that are written alike are cut alike.
#include "compiler_core/plan/rewrites/graph_rewrites.h"

#include <gtest/gtest.h>

#include "compiler_core/ir/text.h"

namespace kiln {
namespace {

std::string arranged(const std::string& body, Result<Graph> (*pass)(const Graph&)) {
  const auto graph = parse_graph("kiln.graph 1\n" + body);
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  const auto after = pass(*graph);
  EXPECT_TRUE(after.has_value()) << after.error().message;
  return print(*after);
}

TEST(ArrangeProducts, TheHeavierOfTwoThatMeetComesSecond) {
  const std::string inputs =
      "%0 = input 0 : f32[4,8]\n%1 = input 1 : f32[8,4]\n%2 = input 2 : f32[8,4]\n";
  const std::string second = inputs +
                             "%3 = matmul %0 %2 : f32[4,4]\n%4 = matmul %0 %1 : f32[4,4]\n"
                             "%5 = tanh %4 : f32[4,4]\n%6 = mul %5 %3 : f32[4,4]\nreturn %6\n";
  const std::string first = inputs +
                            "%3 = matmul %0 %1 : f32[4,4]\n%4 = tanh %3 : f32[4,4]\n"
                            "%5 = matmul %0 %2 : f32[4,4]\n%6 = mul %4 %5 : f32[4,4]\nreturn %6\n";
  EXPECT_EQ(arranged(first, arrange_products), arranged(second, arrange_products));
  EXPECT_EQ(arranged(second, arrange_products), "kiln.graph 1\n" + second);
}

TEST(RoundProducts, WhatIsRoundedInPiecesIsRoundedWhole) {
  const std::string text = arranged(
      "%0 = input 0 : bf16[4,8]\n%1 = input 1 : bf16[8,4]\n%2 = matmul %0 %1 : f32[4,4]\n"
      "%3 = view %2 strides=[4,1] offset=[0] : f32[4,2]\n%4 = cast %3 : bf16[4,2]\n"
      "%5 = view %2 strides=[4,1] offset=[2] : f32[4,2]\n%6 = cast %5 : bf16[4,2]\n"
      "return %4 %6\n",
      round_products);
  EXPECT_NE(text.find("cast %2 : bf16[4,4]"), std::string::npos) << text;
  EXPECT_NE(text.find("view %3 strides=[4,1] offset=[2] : bf16[4,2]"), std::string::npos) << text;
}

// Two halves of what one matmul gives, each with its part of the bias, in an order of its own.
std::string biased(const std::string& second_bias) {
  return arranged(
      "%0 = input 0 : bf16[4,8]\n%1 = input 1 : bf16[8,6]\n%2 = input 2 : bf16[6]\n"
      "%3 = matmul %0 %1 : f32[4,6]\n"
      "%4 = view %3 strides=[1,6] offset=[0] : f32[3,4]\n"
      "%5 = view %2 strides=[1,0] offset=[0] : bf16[3,4]\n%6 = cast %5 : f32[3,4]\n"
      "%7 = add %4 %6 : f32[3,4]\n%8 = cast %7 : bf16[3,4]\n"
      "%9 = view %3 strides=[6,1] offset=[3] : f32[4,3]\n"
      "%10 = view %2 " +
          second_bias +
          " : bf16[4,3]\n%11 = cast %10 : f32[4,3]\n"
          "%12 = add %9 %11 : f32[4,3]\n%13 = cast %12 : bf16[4,3]\nreturn %8 %13\n",
      round_products);
}

TEST(RoundProducts, ABiasInPiecesIsAddedWhole) {
  const std::string text = biased("strides=[0,1] offset=[3]");
  EXPECT_NE(text.find("view %2 strides=[0,1] offset=[0] : bf16[4,6]"), std::string::npos) << text;
  EXPECT_EQ(text.find("add"), text.rfind("add")) << text;
  EXPECT_NE(text.find("cast"), std::string::npos) << text;
}

TEST(RoundProducts, WhatIsAddedElsewhereIsNoBias) {
  for (const char* other : {"strides=[0,1] offset=[2]", "strides=[1,0] offset=[0]"}) {
    const std::string text = biased(other);
    EXPECT_NE(text.find("add"), text.rfind("add")) << text;
  }
}

// The halves of a mixture's gate and product, where a row of no expert is zeros.
TEST(RoundProducts, WhatIsSelectedBeforeItIsRoundedInPiecesIsRoundedWhole) {
  const auto halves = [](const std::string& second_dtype) {
    return arranged(
        "%0 = input 0 : bf16[4,8]\n%1 = input 1 : bf16[8,4]\n%2 = input 2 : bool[4,2]\n"
        "%3 = matmul %0 %1 : f32[4,4]\n%4 = constant 0 : f32[]\n"
        "%5 = view %4 strides=[0,0] offset=[0] : f32[4,2]\n"
        "%6 = view %3 strides=[4,1] offset=[0] : f32[4,2]\n"
        "%7 = select %2 %6 %5 : f32[4,2]\n%8 = cast %7 : bf16[4,2]\n"
        "%9 = view %3 strides=[4,1] offset=[2] : f32[4,2]\n"
        "%10 = select %2 %9 %5 : f32[4,2]\n%11 = cast %10 : " +
            second_dtype + "[4,2]\nreturn %8 %11\n",
        round_products);
  };
  const std::string text = halves("bf16");
  EXPECT_NE(text.find(": bf16[4,4]\n"), std::string::npos) << text;
  EXPECT_EQ(halves("f16").find("16[4,4]"), std::string::npos) << "two roundings are two";
}

// A View that runs from one row on into the next has other columns than its strides say.
TEST(RoundProducts, AViewThatCarriesIsLeftAlone) {
  const std::string text = arranged(
      "%0 = input 0 : bf16[4,8]\n%1 = input 1 : bf16[8,6]\n%2 = input 2 : bf16[6]\n"
      "%3 = matmul %0 %1 : f32[4,6]\n"
      "%4 = view %3 strides=[1] offset=[4] : f32[5]\n"
      "%5 = view %2 strides=[0] offset=[4] : bf16[5]\n%6 = cast %5 : f32[5]\n"
      "%7 = add %4 %6 : f32[5]\n%8 = cast %7 : bf16[5]\n"
      "%9 = view %3 strides=[6,1] offset=[0] : f32[4,3]\n%10 = cast %9 : bf16[4,3]\n"
      "return %8 %10\n",
      round_products);
  EXPECT_NE(text.find("view %3 strides=[1] offset=[4] : f32[5]"), std::string::npos) << text;
}

TEST(ArrangeProducts, AColumnTimesARowIsPointwise) {
  const std::string text = arranged(
      "%0 = input 0 : bf16[4,1]\n%1 = input 1 : bf16[1,6]\n%2 = matmul %0 %1 : f32[4,6]\n"
      "return %2\n",
      multiply_outer_products);
  EXPECT_EQ(text.find("matmul"), std::string::npos) << text;
  EXPECT_NE(text.find("mul"), std::string::npos) << text;
}

TEST(ShareReshapes, ArithmeticOnAProductIsDoneOnceForTwoShapes) {
  const std::string text = arranged(
      "%0 = input 0 : f32[4,8]\n%1 = input 1 : f32[8,4]\n%2 = matmul %0 %1 : f32[4,4]\n"
      "%3 = tanh %2 : f32[4,4]\n%4 = view %2 strides=[0,4,1] offset=[0] : f32[1,4,4]\n"
      "%5 = tanh %4 : f32[1,4,4]\nreturn %3 %5\n",
      share_reshapes);
  EXPECT_EQ(text.find("tanh"), text.rfind("tanh")) << text;
}

}  // namespace
}  // namespace kiln
