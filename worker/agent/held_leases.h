// HeldLeases: what the worker holds, as the coordinator sees it: leases at work and results that
// are not yet known to be stored. Makes reports, takes orders. No I/O; a value with one user.
//
//   lease:   apply(orders) ──> at work ──every candidate finished──> done
//                                 └── not among orders.leases ──> dropped: its results so far stay
//   result:  finish ──> held, part of every report ──ack──> forgotten
//
// Invariants: 1. a result is held until it is acknowledged, whatever connection comes and goes;
// 2. a lease is reported until the report also has all its results, so that the coordinator never
// takes for lost what is only late; 3. reports stay below kMaxReportBytes.
#pragma once

#include <deque>
#include <map>

#include "schema/messages.h"

namespace kiln {

inline constexpr size_t kMaxReportBytes = kMaxMessageBytes / 4;
inline constexpr size_t kMaxHeldBytes = 256 << 20;  // beyond it no new leases are asked for

class HeldLeases {
 public:
  // `self`: the report's fields that do not change.
  explicit HeldLeases(WorkerReport self) : self_(std::move(self)) {}

  struct Changes {
    std::vector<Job> start;
    std::vector<uint64_t> drop;
  };
  Changes apply(WorkerOrders orders);

  void step(uint64_t lease);  // progress: a compile ended
  // False when its lease is not ours any more; the result is then forgotten.
  bool finish(CandidateResult result);
  // Asks for no new lease, and finishes those it has.
  void wind_down() { self_.draining = true; }
  // Gives back every lease and asks for none. Results are still held.
  void drain();
  void set_health(double calibration_us, int device_errors);
  void set_waiting(std::string what) { self_.waiting = std::move(what); }

  WorkerReport report() const;
  bool is_idle() const { return leases_.empty() && results_.empty(); }
  bool has_results() const { return !results_.empty(); }
  size_t leases() const { return leases_.size(); }
  size_t held() const { return results_.size(); }  // results
  const WorkerReport& self() const { return self_; }

 private:
  struct Lease {
    uint64_t epoch = 0;
    size_t unfinished = 0;
    int steps = 0;
  };
  WorkerReport self_;
  std::map<uint64_t, Lease> leases_;  // at work
  std::deque<CandidateResult> results_;
  size_t held_bytes_ = 0;
};

}  // namespace kiln
