// Rows that a Gather picks are stored in the order in which they are read.
#include <gtest/gtest.h>

#include "compiler_core/plan/rewrites/graph_rewrites.h"
#include "tests/compiler_core/plan/rewrites/rewritten.h"

namespace kiln {
namespace {

using testing::count;
using testing::rewritten;

// Rows of 3 of a table of 4, picked by 2 x 5 indices and read through one View.
std::string picked(const std::string& view, const std::string& more = "return %4\n") {
  return rewritten(
      "%0 = input 0 : bf16[4,3]\n%1 = input 1 : i64[2,5]\n%2 = gather %0 %1 : bf16[2,5,3]\n"
      "%3 = view %2 " +
          view + "\n%4 = neg %3 : bf16[" + view.substr(view.find(": bf16[") + 7) + "\n" + more,
      order_gathers);
}

TEST(OrderGathers, RowsReadAcrossAreGatheredAcross) {
  const std::string text = picked("strides=[0,1,15,3] offset=[0] : bf16[7,3,2,5]");
  EXPECT_EQ(count(text, ": bf16[3,2,5]"), 1u) << text;
  EXPECT_EQ(count(text, "strides=[0,10,5,1]"), 1u) << text;
  EXPECT_EQ(count(text, " gather "), 1u) << text;
}

TEST(OrderGathers, AxesOfOneAndOfIndicesMayStandAnywhere) {
  const std::string text = picked("strides=[3,0,1,0,15] offset=[0] : bf16[5,6,3,1,2]");
  EXPECT_EQ(count(text, ": bf16[5,3,2]"), 1u) << text;
}

TEST(OrderGathers, RowsThatAreReadAlongOrOnceOrInPartStay) {
  for (const char* view : {"strides=[0,3,15,1] offset=[0] : bf16[7,5,2,3]",
                           "strides=[1,15,3] offset=[0] : bf16[3,2,5]",
                           "strides=[0,1,15,3] offset=[0] : bf16[7,2,2,5]"})
    EXPECT_EQ(count(picked(view), ": bf16[2,5,3]"), 1u) << view;
}

TEST(OrderGathers, RowsThatOthersReadStay) {
  const std::string text = picked("strides=[0,1,15,3] offset=[0] : bf16[7,3,2,5]",
                                  "%5 = neg %2 : bf16[2,5,3]\nreturn %4 %5\n");
  EXPECT_EQ(count(text, " gather "), 1u) << text;
  EXPECT_EQ(count(text, "gather %0 %1"), 1u) << text;
}

TEST(OrderGathers, RowsOfAnIndexThatIsComputedStay) {
  const std::string text = rewritten(
      "%0 = input 0 : bf16[4,3]\n%1 = input 1 : i64[5]\n%2 = max %1 %1 : i64[5]\n"
      "%3 = gather %0 %2 : bf16[5,3]\n"
      "%4 = view %3 strides=[0,1,3] offset=[0] : bf16[7,3,5]\nreturn %4\n",
      order_gathers);
  EXPECT_EQ(count(text, ": bf16[5,3]"), 1u) << text;
}

}  // namespace
}  // namespace kiln
