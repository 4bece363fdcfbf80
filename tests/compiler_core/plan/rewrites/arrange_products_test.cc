// Layers that are written alike are cut alike.
#include <gtest/gtest.h>

#include "compiler_core/plan/rewrites/graph_rewrites.h"
#include "tests/compiler_core/plan/rewrites/rewritten.h"

namespace kiln {
namespace {

using testing::count;
using testing::rewritten;

TEST(ArrangeProducts, TheHeavierOfTwoThatMeetComesSecond) {
  const std::string inputs =
      "%0 = input 0 : f32[4,8]\n%1 = input 1 : f32[8,4]\n%2 = input 2 : f32[8,4]\n";
  const std::string second = inputs +
                             "%3 = matmul %0 %2 : f32[4,4]\n%4 = matmul %0 %1 : f32[4,4]\n"
                             "%5 = tanh %4 : f32[4,4]\n%6 = mul %5 %3 : f32[4,4]\nreturn %6\n";
  const std::string first = inputs +
                            "%3 = matmul %0 %1 : f32[4,4]\n%4 = tanh %3 : f32[4,4]\n"
                            "%5 = matmul %0 %2 : f32[4,4]\n%6 = mul %4 %5 : f32[4,4]\nreturn %6\n";
  EXPECT_EQ(rewritten(first, arrange_products), rewritten(second, arrange_products));
  EXPECT_EQ(rewritten(second, arrange_products), "kiln.graph 1\n" + second);
}

TEST(ArrangeProducts, AColumnTimesARowIsPointwise) {
  const std::string text = rewritten(
      "%0 = input 0 : bf16[4,1]\n%1 = input 1 : bf16[1,6]\n%2 = matmul %0 %1 : f32[4,6]\n"
      "return %2\n",
      multiply_vectors);
  EXPECT_EQ(text.find("matmul"), std::string::npos) << text;
  EXPECT_NE(text.find("mul"), std::string::npos) << text;
}

TEST(ArrangeProducts, ARowTimesAColumnIsASum) {
  const std::string text = rewritten(
      "%0 = input 0 : bf16[3,1,2]\n%1 = input 1 : bf16[3,2,1]\n%2 = matmul %0 %1 : f32[3,1,1]\n"
      "return %2\n",
      multiply_vectors);
  EXPECT_EQ(text.find("matmul"), std::string::npos) << text;
  EXPECT_NE(text.find("reduce_sum"), std::string::npos) << text;
}

TEST(ShareReshapes, ArithmeticOnAProductIsDoneOnceForTwoShapes) {
  const std::string text = rewritten(
      "%0 = input 0 : f32[4,8]\n%1 = input 1 : f32[8,4]\n%2 = matmul %0 %1 : f32[4,4]\n"
      "%3 = tanh %2 : f32[4,4]\n%4 = view %2 strides=[0,4,1] offset=[0] : f32[1,4,4]\n"
      "%5 = tanh %4 : f32[1,4,4]\nreturn %3 %5\n",
      share_reshapes);
  EXPECT_EQ(text.find("tanh"), text.rfind("tanh")) << text;
}

}  // namespace
}  // namespace kiln
