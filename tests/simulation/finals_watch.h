// FinalsWatch: whether a final that one worker ran whole, and whose records are all durable, is run
// again by a later incarnation of the coordinator (invariant 3). Screenings are the checker's.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "coordinator/core/events.h"

namespace kiln::simulation {

class FinalsWatch {
 public:
  void incarnation_begins();
  void forget() { finished_.clear(); }  // the templates changed: finals are run again
  void leased(const Job& job);
  // Under a lease, about to be stored; durable once the store said so.
  void recorded(const ResultAck& ack, const TuningRecord& record);
  // The store did not take it. What is left of the kernel cannot be told apart any more: the first
  // measurement of a schedule is read as its screening.
  void lost(const TuningRecord& record);
  void durable(const ResultAck& ack);
  // The fault of a final, if it has one.
  std::optional<std::string> again(const Job& job) const;

 private:
  using Schedules = std::set<std::string>;
  struct Final {
    Digest kernel;
    Schedules all, done;  // raced; of those, whose records are durable
  };
  static Schedules schedules_of(const Job& job);

  std::map<Digest, Schedules>
      finished_;                  // by kernel: the last whole final of an earlier incarnation
  std::set<Digest> with_losses_;  // kernels
  // In this incarnation:
  std::map<uint64_t, Final> finals_;  // by lease
  std::map<std::pair<uint64_t, int>, std::string> on_the_way_;
};

}  // namespace kiln::simulation
