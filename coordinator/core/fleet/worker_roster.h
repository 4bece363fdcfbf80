// WorkerRoster: the workers there are, as their reports describe them, in classes of equal hard
// facts: who takes work for a target, how many slots they have, who has one free. A step costs
// O(log workers), and looks at few classes. Plain value; one thread.
//
// A worker takes new work unless it drains or is in quarantine: its device errs, or it drifts
// (worker_health.h) while another of its class takes work: a slow clock is better than none. Its
// health outlives its connection: who comes back is who went away, but for one started anew.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/fleet/worker_health.h"
#include "coordinator/core/planted.h"

namespace kiln {

struct Worker {
  Target target;
  std::string toolkit;
  int slots = 1;          // leases it wants at once
  bool draining = false;  // nothing new for it
  bool drain_ordered = false;
  bool quarantined = false;
  WorkerHealth health;
  int leases = 0;          // open ones
  int64_t report_ms = 0;   // its last report
  int64_t working_ms = 0;  // since then it works on what it has not handed over
  int64_t compiled = 0, measured = 0;
  bool counts_compiles = false;  // itself (WorkerReport.compiled)
  int64_t said_compiles = 0;     // that count, as last reported

  bool takes_work() const {
    return (!draining || planted(PlantedBug::kLeaseToDraining)) &&
           (!quarantined || planted(PlantedBug::kTrustQuarantined));
  }
  bool has_free_slot() const { return takes_work() && leases < slots; }
};

// Workers of equal hard facts.
struct WorkerClass {
  Target target;
  int members = 0;                          // workers there are, whether they take work or not
  std::set<WorkerId> serving;               // take work
  int slots = 0;                            // of those
  std::set<std::pair<int, WorkerId>> idle;  // with a free slot, fewest leases first
};

// "cuda:sm_90a (cuda-13)": the hard facts, for people.
std::string describe(const Target& target);

class WorkerRoster {
 public:
  explicit WorkerRoster(const CoreOptions& options) : options_(options) {}

  void report(int64_t now_ms, const WorkerId& id, const WorkerReport& report);
  Worker* find(const WorkerId& id);
  void remove(const WorkerId& id);
  void order_drain(const WorkerId& id);
  void set_leases(const WorkerId& id, int leases);
  const std::map<WorkerId, Worker>& all() const { return workers_; }
  const std::map<std::string, WorkerClass>& classes() const { return classes_; }
  // Who came into quarantine since the last call.
  std::vector<WorkerId> take_quarantined() { return std::exchange(quarantined_, {}); }
  void tick(int64_t now_ms);

  // Of workers that take new work for `target`: how many slots they have together, how many they
  // are, and whether there is one besides `except`.
  int slots_for(const Target& target) const;
  int count_for(const Target& target) const;
  bool serves(const Target& target, const WorkerId& except = {}) const;
  // Times from `worker`'s device are multiplied by it before they are compared with another's of
  // its model: the model's reference by its own baseline (not its latest reading: who drifts is in
  // quarantine). Also of workers that went away, the last kRemembered of them, since what they
  // measured may be read again from records. 1 when not known.
  double calibration(const WorkerId& worker) const;
  // The same of a record, by the sentinel that it names, which needs nobody to be there; without
  // one, by who took it. Sets the reference of a model that this life has not seen yet.
  double calibration(const TuningRecord& record);
  // The scale of such times: what the sentinel takes on the reference of `target`'s model; 0 when
  // not known.
  double reference_us(const Target& target) const;
  // Some worker of this life could run code for `target`, whatever became of it.
  bool saw(const Target& target) const;
  std::vector<WorkerId> silent_since(int64_t time_ms) const;
  // A GPU's target that somebody named without having one ("cuda:sm_90a"), with the facts of a
  // worker that can run it, so that it has the keys of those who ask from such a machine: the first
  // by name with that very ISA, else the first by name. Any other target, or without such a worker:
  // as it is.
  Target resolve(const Target& target) const;
  // "cpu:x86-64-v4, cuda:sm_90a (cuda-13; 1 in quarantine)", or "none": for people.
  std::string targets() const;

 private:
  using Model = std::pair<std::string, std::string>;  // hard facts, device model
  void leave_class(const WorkerId& id, const Worker& worker);
  void enter_class(const WorkerId& id, const Worker& worker);
  void judge(const WorkerId& id, Worker& worker);
  void judge_drifting();
  void remember(const WorkerId& id, const Worker& worker);
  WorkerHealth health_of(const WorkerId& id, const WorkerReport& report) const;
  void set_reference(const Model& model, double sentinel_us);
  double calibration(const Model& model, double sentinel_us) const;
  double reference_us(const Model& model) const;

  struct Gone {
    Model model;
    WorkerHealth health;
    int64_t said_compiles = 0;
  };

  static constexpr size_t kRemembered = 4'096;
  static constexpr size_t kMaxClasses = 1'024;  // beyond it, those without workers are forgotten
  static constexpr size_t kMaxModels = 4'096;   // beyond it, more are compared as they are
  const CoreOptions& options_;
  std::map<WorkerId, Worker> workers_;
  std::map<std::string, WorkerClass> classes_;  // by describe(); kept without workers for a while
  std::vector<WorkerId> quarantined_;
  // The sentinel of the first device of each model, there or in a record: only the scale, so it
  // stays, and what was compared once can be compared with what comes later, whoever came or went
  // meanwhile.
  std::map<Model, double> reference_us_;
  std::map<WorkerId, Gone> gone_;    // those that went away, and may have come back since
  std::deque<WorkerId> gone_since_;  // in that order
};

}  // namespace kiln
