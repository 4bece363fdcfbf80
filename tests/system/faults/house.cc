#include "tests/system/faults/house.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace kiln::testing {
namespace {

constexpr uint64_t kSeed = 5;
constexpr auto kPatience = std::chrono::seconds(60);

}  // namespace

House::House(LiveService::Options options)
    : dir_(TempDir::create("kiln-faults").value()),
      faults_(dir_.path() / "board"),
      service_(placed(std::move(options)), faults_),
      drill_(service_, faults_, kSeed) {
  adopt_orphans();
  EXPECT_TRUE(service_.await()) << log();
  play({});  // something to look up, and it works
}

void House::play(const Trouble& trouble) {
  for (const std::string& complaint : drill_.round(trouble))
    ADD_FAILURE() << describe(trouble) << "\n  " << complaint << "\n  replay: " << replay(trouble)
                  << "\n"
                  << log();
}

void House::play_point(const Trouble& trouble) {
  for (int tries = 0; tries < 6 && (tries == 0 || faults_.struck() == 0); ++tries) play(trouble);
  EXPECT_GE(faults_.struck(), 1) << describe(trouble) << ": it was not reached";
}

void House::end() {
  for (const std::string& complaint : drill_.after_kill()) ADD_FAILURE() << complaint << log();
  for (const std::string& complaint : drill_.after_stop()) ADD_FAILURE() << complaint << log();
}

LiveService::Options House::placed(LiveService::Options options) const {
  if (options.root.empty()) options.root = dir_.path();
  return options;
}

std::string House::log() const {
  const std::string text = read_file(service_.log("coordinator")).value_or("") +
                           read_file(service_.log("worker0")).value_or("");
  return ::testing::Test::HasFailure()
             ? ""
             : text.substr(text.size() - std::min<size_t>(text.size(), 3000));
}

Trouble at(std::string_view point, FaultAction action, bool after, int error, int skip, int times) {
  Trouble trouble;
  trouble.at_point = true;
  trouble.fault.point = fault_point(point);
  EXPECT_GE(trouble.fault.point, 0) << point;
  trouble.fault.action = action;
  trouble.fault.after = after;
  trouble.fault.error = error;
  trouble.fault.skip = skip;
  trouble.fault.times = times;
  trouble.for_ms = 1500;
  if (trouble.fault.point >= 0)
    trouble.restarts = kFaultPoints[static_cast<size_t>(trouble.fault.point)].needs_restart;
  return trouble;
}

bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < deadline) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace kiln::testing
