// Worker: holds leases as its orders say, takes its time over each candidate, reports what it has
// and does. Stalls, dies and comes back under another name, and sometimes repeats an old result or
// makes one up under another epoch.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/simulation/network.h"
#include "tests/simulation/random.h"
#include "tests/simulation/truth.h"

namespace kiln::simulation {

class Worker {
 public:
  // `slowness`: of its device, 1 for the fastest.
  // `compilers`: that it builds with, apart from its slots; 0: it builds and verifies in one job.
  Worker(std::string name, Target target, double slowness, bool drifting, int compilers,
         Network& network, Random& random, const Truth& truth)
      : name_(std::move(name)),
        target_(std::move(target)),
        slots_(static_cast<int>(random.between(1, 2))),
        slowness_(slowness),
        drifting_(drifting),
        compilers_(compilers),
        network_(network),
        random_(random),
        truth_(truth) {}
  // One that only builds, for what `compiler` makes code for.
  static std::unique_ptr<Worker> builder(std::string name, const Target& compiler, int compilers,
                                         Network& network, Random& random, const Truth& truth);

  void start();
  const WorkerId& id() const { return id_; }
  const Target& target() const { return target_; }
  void ordered(const WorkerOrders& orders);
  void upgrade() { templates_ = network_.templates(); }

 private:
  struct Held {
    Job job;
    size_t done = 0;
  };
  void live();
  void trouble();
  void report();
  void work(uint64_t lease);
  void finish(uint64_t lease);
  CandidateResult try_candidate(const Job& job, const CandidateJob& candidate);
  void lie(WorkerReport& report);
  void die();

  const std::string name_;
  Target target_;  // of a builder without an ISA: it runs nothing
  int slots_;
  std::vector<Target> builds_for_{};
  const double slowness_;
  const bool drifting_;  // its calibration kernel does, now and then
  const int compilers_;
  Network& network_;
  Random& random_;
  const Truth& truth_;
  WorkerId id_;
  std::shared_ptr<const TemplateVersions> templates_;
  int incarnation_ = 0;
  int64_t stalled_until_ms_ = 0;
  int64_t drifts_until_ms_ = 0;  // its calibration kernel, not what it measures
  int device_errors_ = 0;
  bool draining_ = false;
  std::map<uint64_t, Held> leases_;
  std::set<uint64_t> ended_;              // never taken up again
  std::set<uint64_t> lied_of_;            // leases, under epochs that they do not have
  std::vector<CandidateResult> results_;  // not acknowledged
  std::vector<CandidateResult> history_;  // to lie with
};

}  // namespace kiln::simulation
