// Products that are read in pieces are rounded, and their bias added, before that.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "compiler_core/plan/rewrites/graph_rewrites.h"
#include "tests/compiler_core/plan/rewrites/rewritten.h"

namespace kiln {
namespace {

using testing::count;
using testing::rewritten;

TEST(RoundProducts, WhatIsRoundedInPiecesIsRoundedWhole) {
  const std::string text = rewritten(
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
  return rewritten(
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

// An image of `channels`, read pixel by pixel, and in twos by two that are one row; each adds the bias.
std::string patches(int from, int channels, const std::string& bias_of_twos) {
  const int image = channels * 16, twos = channels * 4;
  return rewritten(
      fmt::format(
          "%0 = input 0 : bf16[2,{0},4,4]\n%1 = input 1 : bf16[{1},{0},1,1]\n"
          "%2 = input 2 : bf16[{1}]\n"
          "%3 = convolution %0 %1 stride=[1,1] dilation=[1,1] low=[0,0] high=[0,0] groups=1 : "
          "f32[2,{1},4,4]\n"
          "%4 = view %3 strides=[{2},4,1,16] offset=[0] : f32[2,4,4,{1}]\n"
          "%5 = view %2 strides=[0,0,0,1] offset=[0] : bf16[2,4,4,{1}]\n"
          "%6 = cast %5 : f32[2,4,4,{1}]\n%7 = add %4 %6 : f32[2,4,4,{1}]\n"
          "%8 = cast %7 : bf16[2,4,4,{1}]\n"
          "%9 = view %3 strides=[{2},8,2,1,4,16] offset=[0] : f32[2,2,2,2,2,{1}]\n"
          "%10 = view %9 strides=[{2},{4},{3},1] offset=[0] : f32[2,2,2,{3}]\n"
          "%11 = view %2 {5} : bf16[2,2,2,2,2,{1}]\n"
          "%12 = view %11 strides=[{2},{4},{3},1] offset=[0] : bf16[2,2,2,{3}]\n"
          "%13 = cast %12 : f32[2,2,2,{3}]\n%14 = add %13 %10 : f32[2,2,2,{3}]\n"
          "%15 = cast %14 : bf16[2,2,2,{3}]\nreturn %8 %15\n",
          from, channels, image, twos, 2 * twos, bias_of_twos),
      round_products);
}

TEST(RoundProducts, ABiasOfChannelsIsAddedBeforeTheyAreMoved) {
  const std::string each = "strides=[0,0,0,0,0,1] offset=[0]";
  const std::string text = patches(5, 3, each);
  EXPECT_EQ(count(text, " add "), 1u) << text;
  EXPECT_EQ(count(text, ": bf16[2,3,4,4]\n"), 2u) << "of the bias, of the sum\n" << text;
  EXPECT_EQ(count(patches(5, 3, "strides=[0,0,0,0,1,0] offset=[0]"), " add "), 2u);

  // Where kernels store them so, channels are moved first.
  const std::string turned = patches(8, 32, each);
  EXPECT_EQ(count(turned, " add "), 1u) << turned;
  EXPECT_EQ(count(turned, "view %3 "), 1u) << turned;
  EXPECT_EQ(count(turned, ": bf16[2,32,4,4]\n"), 0u) << turned;
}

// A View of a View is one reading; a sum with a bias in it is worth it, and nothing else.
TEST(RoundProducts, ViewsOfAViewAreReadOnce) {
  const std::string head =
      "%0 = input 0 : bf16[8,8]\n%1 = input 1 : bf16[8,6]\n%2 = input 2 : bf16[6]\n"
      "%3 = matmul %0 %1 : f32[8,6]\n"
      "%4 = view %3 strides=[24,6,12,1] offset=[0] : f32[2,2,2,6]\n"
      "%5 = view %4 strides=[12,1] offset=[0] : f32[4,12]\n";
  const std::string plain = head + "%6 = cast %5 : bf16[4,12]\nreturn %6\n";
  EXPECT_EQ(count(rewritten(plain, round_products), ": bf16[8,6]\n"), 1u) << "%1 alone";
  const std::string biased =
      head +
      "%6 = view %2 strides=[0,0,0,1] offset=[0] : bf16[2,2,2,6]\n"
      "%7 = view %6 strides=[12,1] offset=[0] : bf16[4,12]\n%8 = cast %7 : f32[4,12]\n"
      "%9 = add %5 %8 : f32[4,12]\n%10 = cast %9 : bf16[4,12]\nreturn %10\n";
  EXPECT_EQ(count(rewritten(biased, round_products), ": bf16[8,6]\n"), 3u) << "the bias, the sum";
}

// The halves of a mixture's gate and product, where a row of no expert is zeros.
TEST(RoundProducts, WhatIsSelectedBeforeItIsRoundedInPiecesIsRoundedWhole) {
  const auto halves = [](const std::string& second_dtype) {
    return rewritten(
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
  const std::string text = rewritten(
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

}  // namespace
}  // namespace kiln
