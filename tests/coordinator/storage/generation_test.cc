#include "coordinator/storage/generation.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

constexpr uint64_t kNowUs = 1'763'000'000'000'000, kHourUs = 3'600'000'000;

TEST(Generation, EachIncarnationStartsBeyondTheOneBeforeWhateverTheClockSays) {
  const auto dir = TempDir::create().value();
  uint64_t last = 0;
  for (const uint64_t wall_us : {kNowUs, kNowUs + kHourUs, kNowUs - kHourUs, uint64_t{0}}) {
    const uint64_t first = first_lease_of_next_incarnation(dir.path(), wall_us).value();
    EXPECT_GE(first, last + (uint64_t{1} << 32)) << "room for four thousand million leases";
    last = first;
  }
}

TEST(Generation, BeginsBeyondWhatIncarnationsThatWentByTheClockUsed) {
  const auto dir = TempDir::create().value();
  EXPECT_GT(first_lease_of_next_incarnation(dir.path(), kNowUs).value(), kNowUs);
}

TEST(Generation, ADamagedFileIsNamed) {
  const auto dir = TempDir::create().value();
  for (const char* text : {"", "x\n", "12", "12 \n", "99999999999999999999\n"}) {
    ASSERT_TRUE(write_file(dir.path() / "generation", text));
    const auto first = first_lease_of_next_incarnation(dir.path(), kNowUs);
    ASSERT_FALSE(first.has_value()) << text;
    EXPECT_EQ(first.error().code, Code::kCorruption);
    EXPECT_NE(first.error().message.find("generation"), std::string::npos);
  }
}

}  // namespace
}  // namespace kiln
