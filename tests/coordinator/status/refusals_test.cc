#include "coordinator/status/refusals.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

std::vector<std::string> texts(const std::vector<LogLine>& lines) {
  std::vector<std::string> all;
  for (const LogLine& line : lines) all.push_back(line.logfmt());
  return all;
}

TEST(Refusals, AreLoggedOnceAMinuteForEachUser) {
  Refusals refusals;
  for (int i = 0; i < 30'000; ++i) refusals.count("ci", Code::kPermissionDenied);
  refusals.count("ci", Code::kOverloaded);
  refusals.count("", Code::kOverloaded);
  refusals.count("ci", Code::kNotFound);
  const auto first = texts(refusals.take_lines(1'000));
  ASSERT_EQ(first.size(), 2u);
  EXPECT_NE(first[0].find("user=local overloaded=1 permission_denied=0"), std::string::npos);
  EXPECT_NE(first[1].find("user=ci overloaded=1 permission_denied=30000"), std::string::npos);
  refusals.count("ci", Code::kOverloaded);
  EXPECT_TRUE(refusals.take_lines(1'000 + Refusals::kLineEveryMs - 1).empty());
  EXPECT_EQ(refusals.take_lines(1'000 + Refusals::kLineEveryMs).size(), 1u);
  EXPECT_TRUE(refusals.take_lines(1'000 + 3 * Refusals::kLineEveryMs).empty()) << "nobody was";
}

TEST(Refusals, AreCountedByUserAndByReason) {
  Refusals refusals;
  refusals.count("a", Code::kOverloaded);
  refusals.count("b", Code::kOverloaded);
  refusals.count("b", Code::kPermissionDenied);
  const auto all = refusals.stats();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].user, "b");
  EXPECT_EQ(all[0].count, 2);
  ASSERT_EQ(refusals.stats_of("a").size(), 1u);
  EXPECT_EQ(refusals.stats_of("a")[0].count, 1);
  EXPECT_TRUE(refusals.stats_of("c").empty());
  EXPECT_EQ(refusals.by_reason(),
            (std::map<std::string, int64_t>{{"overloaded", 2}, {"permission_denied", 1}}));
}

}  // namespace
}  // namespace kiln
