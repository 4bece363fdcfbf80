#include "compiler_core/kernels/printing/precision.h"

#include <gtest/gtest.h>

#include "compiler_core/ir/text.h"

namespace kiln {
namespace {

std::vector<bool> ending_in_halves(const char* text) {
  const auto graph = parse_graph(text);
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  return graph ? find_ending_in_halves(*graph) : std::vector<bool>();
}
using Answers = std::vector<bool>;

TEST(EndingInHalves, ALastRoundingIsEnough) {
  EXPECT_EQ(ending_in_halves("kiln.graph 1\n"
                             "%0 = input 0 : bf16[8]\n"
                             "%1 = cast %0 : f32[8]\n"
                             "%2 = exp %1 : f32[8]\n"
                             "%3 = cast %2 : bf16[8]\n"
                             "return %3\n"),
            (Answers{true, true, true, true}));
}

TEST(EndingInHalves, NothingInFrontOfAWideOutputDoes) {
  EXPECT_EQ(ending_in_halves("kiln.graph 1\n"
                             "%0 = input 0 : f32[8]\n"
                             "%1 = exp %0 : f32[8]\n"
                             "%2 = sin %1 : f32[8]\n"
                             "return %2\n"),
            (Answers{false, false, false}));
}

// x.half().float().mean(): the rounding is what was asked for.
TEST(EndingInHalves, ARoundingOnTheWayToAWideOutputIsNotTheLast) {
  EXPECT_EQ(ending_in_halves("kiln.graph 1\n"
                             "%0 = input 0 : f32[8,4]\n"
                             "%1 = cast %0 : f16[8,4]\n"
                             "%2 = cast %1 : f32[8,4]\n"
                             "%3 = reduce_sum %2 axes=[1] : f32[8]\n"
                             "return %3\n"),
            (Answers{true, false, false, false}));
}

TEST(EndingInHalves, AStepFromAHalfDecidesMore) {
  EXPECT_EQ(ending_in_halves("kiln.graph 1\n"
                             "%0 = input 0 : f32[8]\n"
                             "%1 = exp %0 : f32[8]\n"
                             "%2 = floor %1 : f32[8]\n"
                             "%3 = cast %2 : bf16[8]\n"
                             "return %3\n"),
            (Answers{false, false, true, true}));
}

// (x.half() + y.half()).float(): the sum is rounded, and so are both in front of it; beside it, what
// halves alone come of is not.
TEST(StoredAsHalves, NoRoundingInFrontOfAWideOutputIsLeftOut) {
  const auto graph = parse_graph(
      "kiln.graph 1\n"
      "%0 = input 0 : f32[8]\n"
      "%1 = cast %0 : bf16[8]\n"
      "%2 = cast %1 : f32[8]\n"
      "%3 = exp %2 : f32[8]\n"
      "%4 = cast %3 : bf16[8]\n"
      "%5 = cast %4 : f32[8]\n"
      "%6 = sin %5 : f32[8]\n"
      "%7 = cast %6 : bf16[8]\n"
      "return %5 %7\n");
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(find_stored_as_halves(*graph),
            (Answers{false, false, false, false, false, false, true, true}));
  EXPECT_EQ(find_ending_in_halves(*graph),
            (Answers{true, true, true, true, false, false, true, true}));
}

}  // namespace
}  // namespace kiln
