// What a graph computes whole is not computed again in parts.
#include <gtest/gtest.h>

#include "compiler_core/plan/rewrites/graph_rewrites.h"
#include "tests/compiler_core/plan/rewrites/rewritten.h"

namespace kiln {
namespace {

using testing::count;
using testing::rewritten;

// A scaled sum of two streams, rounded, whole; and the same of a View of each, `shape` large.
std::string stream(const std::string& view, const std::string& bias, const std::string& shape) {
  return rewritten(
      "%0 = input 0 : bf16[4,6,8]\n%1 = input 1 : bf16[4,6,8]\n%2 = input 2 : bf16[8]\n"
      "%3 = cast %0 : f32[4,6,8]\n%4 = cast %1 : f32[4,6,8]\n%5 = add %3 %4 : f32[4,6,8]\n"
      "%6 = view %2 strides=[0,0,1] offset=[0] : bf16[4,6,8]\n%7 = cast %6 : f32[4,6,8]\n"
      "%8 = mul %5 %7 : f32[4,6,8]\n%9 = cast %8 : bf16[4,6,8]\n"
      "%10 = view %0 " +
          view + " : bf16" + shape + "\n%11 = cast %10 : f32" + shape + "\n%12 = view %1 " + view +
          " : bf16" + shape + "\n%13 = cast %12 : f32" + shape + "\n%14 = add %13 %11 : f32" +
          shape + "\n%15 = view %2 " + bias + " : bf16" + shape + "\n%16 = cast %15 : f32" + shape +
          "\n%17 = mul %16 %14 : f32" + shape + "\n%18 = cast %17 : bf16" + shape +
          "\n%19 = tanh %18 : bf16" + shape + "\nreturn %9 %19\n",
      share_parts);
}

TEST(ShareParts, RowsOfAStreamAreReadFromIt) {
  const std::string text =
      stream("strides=[48,8,1] offset=[16]", "strides=[0,0,1] offset=[0]", "[4,3,8]");
  EXPECT_EQ(count(text, " add "), 1u) << text;
  EXPECT_EQ(count(text, " mul "), 1u) << text;
}

TEST(ShareParts, AnotherOrderIsReadFromIt) {
  const std::string text =
      stream("strides=[8,1,48] offset=[0]", "strides=[0,1,0] offset=[0]", "[6,8,4]");
  EXPECT_EQ(count(text, " add "), 1u) << text;
  EXPECT_EQ(count(text, " mul "), 1u) << text;
}

TEST(ShareParts, OtherElementsAreComputed) {
  // The part is scaled along its rows, the whole along its channels.
  const std::string text =
      stream("strides=[48,8,1] offset=[16]", "strides=[0,1,0] offset=[0]", "[4,3,8]");
  EXPECT_EQ(count(text, " mul "), 2u) << text;
  EXPECT_EQ(count(text, " add "), 2u) << "one of them is no halves: " << text;
}

// Reading a stored result instead of the one input would save nothing.
TEST(ShareParts, ArithmeticOnOneValueStays) {
  const std::string text = rewritten(
      "%0 = input 0 : bf16[4,8]\n%1 = cast %0 : f32[4,8]\n%2 = tanh %1 : f32[4,8]\n"
      "%3 = cast %2 : bf16[4,8]\n%4 = view %0 strides=[8,1] offset=[8] : bf16[2,8]\n"
      "%5 = cast %4 : f32[2,8]\n%6 = tanh %5 : f32[2,8]\n%7 = cast %6 : bf16[2,8]\n"
      "return %3 %7\n",
      share_parts);
  EXPECT_EQ(count(text, " tanh "), 2u) << text;
}

// The parts come before the wholes, and the second sum reads the first.
TEST(ShareParts, SumsOnSumsAreReadFromTheLast) {
  const std::string text = rewritten(
      "%0 = input 0 : bf16[4,8]\n%1 = input 1 : bf16[4,8]\n%2 = input 2 : bf16[4,8]\n"
      "%3 = view %0 strides=[16,8,1] offset=[0] : bf16[2,1,8]\n%4 = cast %3 : f32[2,1,8]\n"
      "%5 = view %1 strides=[16,8,1] offset=[0] : bf16[2,1,8]\n%6 = cast %5 : f32[2,1,8]\n"
      "%7 = add %4 %6 : f32[2,1,8]\n%8 = cast %7 : bf16[2,1,8]\n%9 = cast %8 : f32[2,1,8]\n"
      "%10 = view %2 strides=[16,8,1] offset=[0] : bf16[2,1,8]\n%11 = cast %10 : f32[2,1,8]\n"
      "%12 = sub %9 %11 : f32[2,1,8]\n%13 = cast %12 : bf16[2,1,8]\n%14 = exp %13 : bf16[2,1,8]\n"
      "%15 = cast %0 : f32[4,8]\n%16 = cast %1 : f32[4,8]\n%17 = add %15 %16 : f32[4,8]\n"
      "%18 = cast %17 : bf16[4,8]\n%19 = cast %18 : f32[4,8]\n%20 = cast %2 : f32[4,8]\n"
      "%21 = sub %19 %20 : f32[4,8]\n%22 = cast %21 : bf16[4,8]\nreturn %14 %22\n",
      share_parts);
  EXPECT_EQ(count(text, " add "), 1u) << text;
  EXPECT_EQ(count(text, " sub "), 1u) << text;
}

}  // namespace
}  // namespace kiln
