// What finds the losses is tested too: damage that no fault of a round explains, done behind the
// drill's back, must be complained of.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>

#include "tests/system/faults/house.h"

namespace kiln::testing {
namespace {

bool complains(const std::vector<std::string>& complaints, std::string_view of) {
  return std::ranges::any_of(complaints, [&](const std::string& complaint) {
    return complaint.find(of) != std::string::npos;
  });
}

// A coordinator that forgot all it ever answered.
void lose_everything(LiveService& service) {
  service.coordinator().signal(SIGKILL);
  service.coordinator().wait();
  for (const char* suffix : {"", "-wal", "-shm"})
    std::filesystem::remove(service.data() / fmt::format("index.sqlite{}", suffix));
  ASSERT_TRUE(service.await());
}

TEST(Checks, ALossIsFoundByTheNextRound) {
  House house;
  lose_everything(house.service());
  EXPECT_TRUE(complains(house.drill().round({}), "lost, though it was answered as stored"));
  EXPECT_GE(house.drill().tally().lost, 1);
  EXPECT_TRUE(house.drill().round({}).empty()) << "by then it was tuned again";
}

TEST(Checks, ALossIsFoundBeforeBlobsAreHurtOnPurpose) {
  House house;
  lose_everything(house.service());
  Trouble trouble;
  trouble.rots = true;
  EXPECT_TRUE(complains(house.drill().round(trouble), "some are gone"));
}

// Where a new binary's folder would be there is a file; what was stored before can be read.
// (From a seed that queues nothing, which would wait for ever to be stored.)
TEST(Checks, AnAnswerFromMemoryAloneNeedsAReason) {
  House house({}, 6);
  for (int byte = 0; byte < 256; ++byte) {
    const Path folder = house.service().data() / "blobs" / fmt::format("{:02x}", byte);
    if (!std::filesystem::exists(folder)) std::ofstream(folder) << "no directory";
  }
  EXPECT_TRUE(complains(house.drill().round({}), "in memory only"));
}

TEST(Checks, AProcessLeftBehindIsFoundInItsRound) {
  House house;
  const Child left = Child::start(
      {binary("kiln"), "stats", "--watch", "--coordinator", house.service().endpoint()},
      "/dev/null", "/dev/null");
  EXPECT_TRUE(complains(house.drill().round({}), "still running: kiln "));
  house.drill().welcome(left.pid());
  EXPECT_TRUE(house.drill().round({}).empty());
}

}  // namespace
}  // namespace kiln::testing
