// Finals: the last race of a tuning task: all finalists, interleaved in one measurement on one
// worker. Knows their times, nothing of leases. Plain value; one thread.
//
//   enter --> begin (a run) --every one finished--> the fastest wins
//               ^     `--failed, cut_short--> the run's times count for nothing
//               `--------------'              (after max_retries such runs finals are abandoned)
//
// When finals are abandoned the screening order decides, among candidates that completed a run if
// any did, so a candidate that crashes every runner cannot win. Withdrawing a candidate restarts
// the race for the rest, because it was to blame.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "compiler_core/tune/measurement.h"

namespace kiln {

class Finals {
 public:
  explicit Finals(int max_retries) : max_retries_(max_retries) {}

  // Leader of the screening first.
  void enter(std::vector<int> finalists);
  const std::vector<int>& finalists() const { return finalists_; }
  void withdraw(int finalist);  // nothing, when it is none

  // ---- a run ----
  void begin();
  void finished(int candidate, Measurement calibrated);  // of an earlier incarnation's run too
  void failed(int finalist);                             // itself
  void cut_short();                                      // its worker went away, say
  void forget_times() { times_.clear(); }

  // Once no run is under way; nothing: there must be another run.
  std::optional<int> winner(const MeasurementPolicy& policy, bool slowest_wins) const;
  // The fastest of those that `among` admits, as far as their times are known; nothing: it admits
  // none.
  std::optional<int> best_of(const std::function<bool(int)>& among) const;
  const Measurement* time_of(int candidate) const;

 private:
  bool needs_no_race() const;
  bool all_finished() const;

  const int max_retries_;
  std::vector<int> finalists_;
  std::map<int, Measurement> times_;  // calibrated, as the screening's medians are
  std::set<int> ended_, failed_;      // in any run
  bool is_cut_short_ = false;         // the run under way
  int runs_cut_short_ = 0;            // since a finalist was withdrawn
};

}  // namespace kiln
