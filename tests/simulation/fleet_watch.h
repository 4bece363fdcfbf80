// FleetWatch: whether work goes only to workers that should have it (invariant 7: none to one that
// drains, or whose device failed), and how often a candidate may kill a runner (invariant 8).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "coordinator/core/events.h"

namespace kiln::simulation {

class FleetWatch {
 public:
  explicit FleetWatch(const CoreOptions& options) : options_(options) {}

  void incarnation_begins();
  void saw(int64_t now_ms, const Event& event);
  // Each says what is wrong, if anything.
  std::optional<std::string> ordered(const SendOrders& orders) const;
  std::optional<std::string> leased(int64_t now_ms, const WorkerId& worker) const;
  std::optional<std::string> recorded(const TuningRecord& record);

 private:
  struct Known {
    bool is_there = false;
    int64_t seen_ms = 0, failed_ms = -1;  // -1: its device did not fail
    int device_errors = 0;
    bool draining = false, told_to_drain = false;
  };
  static void left(Known& worker);

  const CoreOptions& options_;
  // Also those that went away, or were silent: whose device failed is known when it comes back.
  std::map<WorkerId, Known> workers_;
  std::map<Digest, int> plans_;  // by kernel: how often it was planned
  std::map<std::pair<Digest, std::string>, int> deaths_;
};

}  // namespace kiln::simulation
