#include "tests/system/faults/house.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "tests/system/faults/processes.h"

namespace kiln::testing {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

}  // namespace

House::House(LiveService::Options options, uint64_t seed)
    : dir_(TempDir::create("kiln-faults").value()),
      faults_(dir_.path() / "board"),
      service_(placed(std::move(options)), faults_),
      drill_(service_, faults_, seed) {
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

void House::play_points(Trouble trouble) {
  for (int tries = 0; tries < 6 && !trouble.faults.empty(); ++tries) {
    play(trouble);
    std::vector<Fault> missed;
    for (size_t n = 0; n < trouble.faults.size(); ++n)
      if (faults_.struck(n) == 0) missed.push_back(trouble.faults[n]);
    trouble.faults = std::move(missed);
  }
  EXPECT_TRUE(trouble.faults.empty()) << describe(trouble) << ": not reached";
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

Fault fault_at(std::string_view point, FaultAction action, bool after, int error, int skip,
               int times) {
  Fault fault;
  fault.point = fault_point(point);
  EXPECT_GE(fault.point, 0) << point;
  fault.point = std::max(fault.point, 0);
  fault.action = action;
  fault.after = after;
  fault.error = error;
  fault.skip = skip;
  fault.times = times;
  return fault;
}

Trouble at(Fault fault) {
  Trouble trouble;
  trouble.faults = {fault};
  trouble.for_ms = 1500;
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
