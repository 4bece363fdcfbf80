// Rows that share a matrix are multiplied by it together.
#include <gtest/gtest.h>

#include "compiler_core/plan/rewrites/graph_rewrites.h"
#include "tests/compiler_core/plan/rewrites/rewritten.h"

namespace kiln {
namespace {

using testing::count;
using testing::rewritten;

Result<Graph> packed(const Graph& graph) {
  return pack_shared_heads(graph, OnePass::kManyRows);
}

// Six heads of two batches, three of them to a matrix of keys: as `expand` and `reshape` write it.
const std::string kScores =
    "%0 = input 0 : f32[2,6,1,4]\n%1 = input 1 : f32[2,2,5,4]\n"
    "%2 = view %1 strides=[40,20,0,4,1] offset=[0] : f32[2,2,3,5,4]\n"
    "%3 = view %2 strides=[120,20,1,4] offset=[0] : f32[2,6,4,5]\n"
    "%4 = matmul %0 %3 : f32[2,6,1,5]\n";

TEST(PackSharedHeads, GroupedQueriesAreRowsOfOneProduct) {
  const std::string text = rewritten(kScores + "return %4\n", packed);
  EXPECT_NE(text.find("f32[2,2,3,5]"), std::string::npos) << text;
  EXPECT_EQ(text.find("f32[2,2,3,5,4]"), std::string::npos) << text;
}

TEST(PackSharedHeads, SoAreSeveralRowsOfAHead) {
  const std::string text = rewritten(
      "%0 = input 0 : f32[6,2,4]\n%1 = input 1 : f32[2,4,5]\n"
      "%2 = view %1 strides=[20,0,5,1] offset=[0] : f32[2,3,4,5]\n"
      "%3 = view %2 strides=[20,5,1] offset=[0] : f32[6,4,5]\n"
      "%4 = matmul %0 %3 : f32[6,2,5]\nreturn %4\n",
      packed);
  EXPECT_NE(text.find("f32[2,6,5]"), std::string::npos) << text;
}

TEST(PackSharedHeads, OneHeadForAllIsReadOnce) {
  const std::string text = rewritten(
      "%0 = input 0 : f32[2,6,1,4]\n%1 = input 1 : f32[2,1,4,5]\n"
      "%2 = view %1 strides=[20,0,5,1] offset=[0] : f32[2,6,4,5]\n"
      "%3 = matmul %0 %2 : f32[2,6,1,5]\nreturn %3\n",
      packed);
  EXPECT_NE(text.find("f32[2,1,6,5]"), std::string::npos) << text;
}

TEST(PackSharedHeads, WeightsOfManyRowsAreReadWhereTheyLie) {
  const std::string text = rewritten(
      "%0 = input 0 : f32[6,3,4]\n%1 = input 1 : f32[4,5]\n"
      "%2 = view %1 strides=[0,5,1] offset=[0] : f32[6,4,5]\n"
      "%3 = matmul %0 %2 : f32[6,3,5]\nreturn %3\n",
      packed);
  EXPECT_NE(text.find("matmul %0 %2 : f32[6,3,5]"), std::string::npos) << text;
}

TEST(PackSharedHeads, HeadsThatTakeTurnsStayApart) {  // the outer axis repeats, not the inner one
  const std::string text = rewritten(
      "%0 = input 0 : f32[6,1,4]\n%1 = input 1 : f32[2,4,5]\n"
      "%2 = view %1 strides=[0,20,5,1] offset=[0] : f32[3,2,4,5]\n"
      "%3 = view %2 strides=[20,5,1] offset=[0] : f32[6,4,5]\n"
      "%4 = matmul %0 %3 : f32[6,1,5]\nreturn %4\n",
      packed);
  EXPECT_NE(text.find("matmul %0 %3 : f32[6,1,5]"), std::string::npos) << text;
}

TEST(PackSharedHeads, AnAttentionKeepsItsHeads) {
  const std::string text =
      rewritten(kScores +
                    "%5 = reduce_max %4 axes=[3] : f32[2,6,1]\n"
                    "%6 = view %5 strides=[6,1,1,0] offset=[0] : f32[2,6,1,5]\n"
                    "%7 = sub %4 %6 : f32[2,6,1,5]\n%8 = exp %7 : f32[2,6,1,5]\n"
                    "%9 = reduce_sum %8 axes=[3] : f32[2,6,1]\n"
                    "%10 = view %9 strides=[6,1,1,0] offset=[0] : f32[2,6,1,5]\n"
                    "%11 = div %8 %10 : f32[2,6,1,5]\n"
                    "%12 = view %2 strides=[120,20,4,1] offset=[0] : f32[2,6,5,4]\n"
                    "%13 = matmul %11 %12 : f32[2,6,1,4]\nreturn %13\n",
                packed);
  EXPECT_EQ(count(text, "f32[2,2,3,5,4]"), 1u) << text;
  EXPECT_EQ(count(text, "f32[2,6,1,5]"), 6u) << text;
}

}  // namespace
}  // namespace kiln
