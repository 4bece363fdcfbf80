// Cluster: clients, workers, a store, planners, a lossy network and one coordinator core at a time,
// all from one seed. Faults (loss, duplication, reordering, death, stalls, lies, a full disk) stop
// after a while; then everything still asked must be answered.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <string>

#include "coordinator/core/core.h"
#include "coordinator/core/mutation.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/client.h"
#include "tests/simulation/random.h"
#include "tests/simulation/store.h"
#include "tests/simulation/truth.h"
#include "tests/simulation/worker.h"

namespace kiln::simulation {

// Mistakes mutated between the core and its world, to see that the checker finds them.
enum class WorldMutation : uint8_t {
  kNone,
  kAcceptStale,  // results of a lease that was taken back count for the one that followed
  kAnswerTwice,
  kAnswerUnstored,  // the core is told that a program is stored when the write is only queued
  kAckUnstored,     // the same for records
  kForgetRecords,   // the planner does not read what was measured before
  kReuseLeaseIds,   // a restarted coordinator counts leases from 1 again
  kLoseDeaths,      // nobody notices dead workers and lost leases
  kQueueUnstored,   // the core is told that a detached task is stored when the write is only
                    // queued
  kForgetTasks,     // a restarted coordinator does not hear of the detached tasks
  kTrustWallClock,  // lease ids begin at the wall clock, which may be set back
  kEvictKernels,    // the cache is trimmed of kernels that its programs need
  kTrustStale,      // the planner takes a winner whose templates have other versions now
  // Of a pool alone:
  kUnfenced,     // a coordinator whose term is over still writes
  kReuseEpochs,  // a term that the database lost in a fail-over is issued again
  kReuseNames,   // an object has the name that its bytes had before
  kAwayIsLost,   // a binary that the object store does not give just now counts as gone
};

// One coordinator and its successors on one store, or several of which one leads: what stands still
// loses its term, and writes when it goes on (terms.cc).
enum class Cast : uint8_t { kOne, kPool };

// The clusters of seeds from here on have workers that only build, beside those that measure.
inline constexpr uint64_t kFirstSeedWithBuilders = 1'000'000;

// At most one of both: in the world, or in the core (of this thread, while the cluster lives).
struct Mutant {
  WorldMutation world = WorldMutation::kNone;
  Mutation core = Mutation::kNone;
};

struct Outcome {
  std::optional<std::string> violation;
  int64_t steps = 0, answers = 0, accepted = 0, fenced = 0, incarnations = 0;  // how much happened
  Stats stats;  // of the last incarnation
};

class Cluster : public Network {
 public:
  explicit Cluster(uint64_t seed, Mutant mutant = {}, bool trace = false, Cast cast = Cast::kOne);
  ~Cluster() override;
  Outcome run();

 private:
  struct Timer {
    int64_t at_ms = 0;
    uint64_t order = 0;
    std::function<void()> run;
    bool operator>(const Timer& other) const {
      return std::tie(at_ms, order) > std::tie(other.at_ms, other.order);
    }
  };

  // Network: what clients and workers see of the cluster.
  void after(int64_t ms, std::function<void()> run) override;
  void to_coordinator(Event event) override;
  void tell_coordinator(Event event) override;
  bool faults() const override { return now_ms_ < faults_end_ms_; }
  int64_t now_ms() const override { return now_ms_; }
  std::shared_ptr<const TemplateVersions> templates() override;

  void start_coordinator();
  void crash_coordinator();
  // ---- A pool's store (terms.cc) ----
  void take_term();
  void stand_still();
  void fail_over();
  void write_late(const std::function<void(Status)>& apply, int64_t writer);
  void put_object(const Digest& blob);
  void remove_objects(const std::vector<Digest>& blobs);
  void read_binaries(const Program& program);
  void tick();
  void cause_trouble();
  void cut_somebody_off();
  bool is_cut_off(const std::string& id, bool inwards) const;
  void step(Event event);
  void feed(Event event);
  void act(Action action);
  void act_on_client(const Action& action);
  void act_on_store(Action action);
  void act_on_tasks(Action action);
  void withdraw(const WithdrawKernel& action);
  bool detached_done() const;
  std::vector<CompileRequest> successors_owed() const;
  bool await_successors();
  void to_client(const ClientId& client, std::function<void(Client&)> deliver);
  void to_worker(const WorkerId& worker, WorkerOrders orders);
  void lossy(std::function<void()> deliver);
  void write(std::function<void(Status)> apply);
  void plan(StartPlan start);
  void plan_alternatives(const TrueProgram& truth, const StartPlan& start, PlanFinished& finished);
  PlannedKernel planned(int kernel, const StartPlan& start);
  void accept_stale(Event& event) const;
  void evict();
  bool all_quiet() const;
  CoreOptions make_options(uint64_t seed);
  void set_bounds(uint64_t seed, CoreOptions& options) const;
  void note(const std::string& text);

  Random random_, upgrades_, terms_;
  const WorldMutation mutation_;
  const bool trace_;
  const Cast cast_;
  const Scenario scenario_;
  const Truth truth_;
  CoreOptions options_;
  Checker checker_;
  Store store_;

  int64_t now_ms_ = 0;
  int64_t faults_end_ms_ = 0;
  int64_t ask_again_ms_ = 0;
  uint64_t orders_ = 0;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<std::unique_ptr<Worker>> workers_;

  std::unique_ptr<Core> core_;  // null while it is down
  int64_t incarnation_ = 0;     // events of an earlier one are lost
  int64_t writer_free_ms_ = 0;  // one writer: writes keep their order
  double loss_ = 0, duplication_ = 0, disk_full_ = 0, death_ = 0;
  // Partitions in one direction: what goes to (or comes from) these is lost until then.
  std::map<std::pair<std::string, bool>, int64_t> cut_until_ms_;  // name, inwards
  bool fleet_upgraded_ = false;  // every worker has the coordinator's templates, for good
  int64_t clock_offset_us_ = 0;  // of the wall clock, which jumps
  std::map<int64_t, uint64_t> stood_still_;  // incarnations, and the epochs of their terms
  bool is_late_ = false;  // what is being written is a dead coordinator's, which hears nothing
  Outcome outcome_;
  std::map<uint64_t, std::pair<WorkerId, Job>> jobs_;  // kAcceptStale: all ever sent, by lease
};

}  // namespace kiln::simulation
