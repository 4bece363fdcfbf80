// Scaled queries are scaled where the product that gives them is stored.
#include <gtest/gtest.h>

#include "compiler_core/plan/rewrites/graph_rewrites.h"
#include "tests/compiler_core/plan/rewrites/rewritten.h"

namespace kiln {
namespace {

using testing::count;
using testing::rewritten;

// One product of 6 columns with a bias; 2 of them, at `first`, are scaled and rounded; others are read at
// `other` as they are.
std::string scaled(int first, int other) {
  return rewritten(
      "%0 = input 0 : bf16[4,8]\n%1 = input 1 : bf16[8,6]\n%2 = input 2 : bf16[6]\n"
      "%3 = matmul %0 %1 : f32[4,6]\n"
      "%4 = view %2 strides=[0,1] offset=[0] : bf16[4,6]\n%5 = cast %4 : f32[4,6]\n"
      "%6 = add %3 %5 : f32[4,6]\n%7 = cast %6 : bf16[4,6]\n"
      "%8 = view %7 strides=[12,6,1] offset=[" +
          std::to_string(first) +
          "] : bf16[2,2,2]\n"
          "%9 = cast %8 : f32[2,2,2]\n%10 = constant 0.3 : f32[]\n"
          "%11 = view %10 strides=[0,0,0] offset=[0] : f32[2,2,2]\n"
          "%12 = mul %9 %11 : f32[2,2,2]\n%13 = cast %12 : bf16[2,2,2]\n"
          "%14 = tanh %13 : bf16[2,2,2]\n"
          "%15 = view %7 strides=[6,1] offset=[" +
          std::to_string(other) + "] : bf16[4,2]\nreturn %14 %15\n",
      fold_column_arithmetic);
}

TEST(FoldColumnArithmetic, ColumnsThatOnlyOneReadsAreScaledInTheProduct) {
  for (const int first : {0, 2, 4}) {
    const std::string text = scaled(first, first == 2 ? 4 : 2);
    EXPECT_EQ(count(text, " select "), 1u) << text;
    EXPECT_EQ(count(text, " lt "), first == 2 ? 2u : 1u) << text;
    EXPECT_EQ(count(text, " mul "), 1u) << text;
  }
}

TEST(FoldColumnArithmetic, ColumnsThatOthersReadAsTheyAreStay) {
  EXPECT_EQ(count(scaled(0, 1), " select "), 0u);
  EXPECT_EQ(count(scaled(2, 1), " select "), 0u);
}

}  // namespace
}  // namespace kiln
