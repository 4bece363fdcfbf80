#include "compiler_core/tune/schedule.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

TEST(Schedule, TextRoundTrips) {
  const Schedule schedule{"cpu.row_reduction",
                          {{"vector", 16}, {"unroll", 4}, {"rows", 1}, {"stage", -1}}};
  EXPECT_EQ(schedule.to_string(), "cpu.row_reduction vector=16 unroll=4 rows=1 stage=-1");
  EXPECT_EQ(Schedule::parse(schedule.to_string()).value(), schedule);
}

TEST(Schedule, MayDecideNothing) {
  EXPECT_EQ(Schedule::parse("matmul").value(), (Schedule{"matmul", {}}));
}

TEST(Schedule, OrderIsPartOfIt) {
  EXPECT_NE(Schedule::parse("matmul a=1 b=2").value(), Schedule::parse("matmul b=2 a=1").value());
}

TEST(Schedule, ADecisionThatIsNotThereHasItsDefault) {
  const Schedule schedule = Schedule::parse("pointwise vector=8").value();
  EXPECT_EQ(schedule.get("vector", 1), 8);
  EXPECT_EQ(schedule.get("unroll", 2), 2);
}

TEST(Schedule, RefusesEverythingElse) {
  for (const char* text :
       {"", " ", "no-name", ".matmul", "cpu.", "cpu..matmul", "matmul ", "matmul  a=1", "matmul a",
        "matmul a=", "matmul =1", "matmul a=1x", "matmul a=99999999999999999999", "matmul a=1 a=2",
        "matmul a.b=1", "matmul a=1\n", "matmul a=0x10"}) {
    const Result<Schedule> parsed = Schedule::parse(text);
    ASSERT_FALSE(parsed) << "'" << text << "'";
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument);
  }
  EXPECT_FALSE(Schedule::parse("matmul " + std::string(10'000, 'a') + "=1"));
}

}  // namespace
}  // namespace kiln
