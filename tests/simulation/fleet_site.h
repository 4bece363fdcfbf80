// FleetSite: what a worker of a TuningFleet has beside its agent: compilers, and a device unless it
// only builds. It takes jobs and finishes their candidates as the jobs of a real one are finished
// (worker/jobs), in the time that its world keeps. One thread.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/events.h"
#include "tests/simulation/tuning_fleet.h"

namespace kiln::simulation {

inline int64_t us_of(double ms) {
  return static_cast<int64_t>(ms * 1'000);
}
Target fleet_target();
// What a worker of a fleet says of itself.
WorkerReport fleet_report(const std::string& name, int compilers, bool only_builds, int slots);

// A kernel and what its candidates take, by its number.
class FleetKernel {
 public:
  FleetKernel(int number, double candidates, const FleetCosts& costs);
  FleetKernel(int number, const RecordedKernel& recorded, bool has_variants);
  PlannedKernel planned() const;
  int size() const { return static_cast<int>(build_us_.size()); }
  int64_t build_us(int candidate) const { return build_us_[static_cast<size_t>(candidate)]; }
  int64_t try_us(int candidate) const { return try_us_[static_cast<size_t>(candidate)]; }
  int64_t open_us() const { return open_us_; }
  int64_t final_us() const { return final_us_; }  // of one finalist
  double time_of(int candidate) const { return times_us_[static_cast<size_t>(candidate)]; }
  bool spills(int candidate) const { return spills_[static_cast<size_t>(candidate)]; }
  // Whose binary it has: its own number, or that of the one before it.
  int twin_of(int candidate) const { return twins_[static_cast<size_t>(candidate)]; }

 private:
  int number_;
  Family family_ = Family::kPointwise;
  int64_t open_us_ = 0, final_us_ = 0;
  std::vector<int64_t> build_us_, try_us_;
  std::vector<double> times_us_;  // of the kernel itself
  std::vector<bool> spills_;
  std::vector<int> twins_;
  std::vector<Schedule> schedules_;
  bool has_variants_ = false;
  int reserves_ = 0;  // the last ones
};

// What a site sees of the world around it.
class FleetWorld {
 public:
  virtual ~FleetWorld() = default;
  virtual int64_t now_us() const = 0;
  virtual void after(int64_t us, std::function<void()> run) = 0;
  virtual const FleetKernel& kernel(const Digest& key) = 0;
};

class FleetSite {
 public:
  struct Figures {
    int64_t leases = 0, tried = 0, builds = 0, opens = 0;
    int64_t busy_us = 0, waited_us = 0, compile_us = 0;
    int64_t first_us = 0, last_us = 0, last_build_us = 0;
  };
  // The agent's: stepped(lease), finished(result).
  struct Callbacks {
    std::function<void(uint64_t lease)> stepped;
    std::function<void(CandidateResult result)> finished;
  };
  // `binary_bytes`: of what its compilers make.
  FleetSite(int compilers, FleetWorld& world, const FleetCosts& costs, size_t binary_bytes,
            Callbacks callbacks)
      : free_(compilers),
        world_(world),
        costs_(costs),
        binary_bytes_(binary_bytes),
        callbacks_(std::move(callbacks)) {}

  void start(std::vector<Job> jobs);
  void drop(uint64_t lease) { leases_.erase(lease); }
  const Figures& figures() const { return figures_; }

 private:
  enum class Progress : uint8_t { kCompiling, kReady, kFinished };
  struct Held {
    Job job;
    std::vector<Progress> candidates;  // as job.candidates
    bool right_without_spills = false;
    std::set<size_t> pruned{};  // candidates that spill, while others are right
    bool has(Progress progress) const;
  };
  using JobEntry = std::pair<const uint64_t, Held>;
  void begin(Held& held);
  void compile_next();
  void compiled(uint64_t lease, size_t candidate);
  void use_device();
  JobEntry* most_ready();
  size_t next_of(const Held& held) const;
  int64_t screen_us(Held& held, size_t candidate);
  void try_next(JobEntry& chosen);
  void tried(uint64_t lease, const std::vector<size_t>& candidates);
  int64_t open_us(const Digest& kernel);
  void finish(const Held& held, size_t candidate);
  void job_over(uint64_t lease);
  void account_wait();

  int free_;  // compilers
  FleetWorld& world_;
  const FleetCosts& costs_;
  const size_t binary_bytes_;
  const Callbacks callbacks_;
  std::map<uint64_t, Held> leases_;
  std::deque<std::pair<uint64_t, size_t>> to_compile_;
  std::list<Digest> open_;                  // workloads, the current one first
  std::set<std::pair<Digest, int>> known_;  // binaries tried
  bool device_busy_ = false;
  uint64_t current_ = 0;         // the job that the device is at
  int64_t waits_since_us_ = -1;  // for its compilers
  Figures figures_;
};

}  // namespace kiln::simulation
