// WorkerRegistry: the connected workers as their reports describe them, in classes of equal hard
// facts: which workers take work for a target, and which have a free slot. A step costs
// O(log workers) and looks at few classes. Plain value; one thread.
//
// A worker takes new work unless it drains or is in quarantine. It is quarantined while its device
// errs, and while it drifts (worker_health.h) if another worker of its class takes work: a drifting
// clock is better than none. Health survives reconnects and is reset when the worker process
// restarts.
//
// One that only builds (WorkerReport::builds_for) is in no class of devices: it serves no target, and
// nothing waits for it. It is in a class of builders for each target that it builds for, beside the
// workers with a device, whose compilers build too.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/fleet/worker_health.h"
#include "coordinator/core/mutation.h"

namespace kiln {

struct Worker {
  Target target;
  std::string toolkit;
  std::string owner{};               // the name of its key; empty: there are none
  Standing standing{};               // of its key
  int slots = 1;                     // leases it can hold at once, besides builds
  bool builds = false;               // takes builds, and verifies what is given
  std::vector<Target> builds_for{};  // WorkerReport's: not empty where it has no device
  int build_places = 0;   // builds it can hold at once: some are queued where they are next
  bool draining = false;  // gets no new leases
  bool drain_ordered = false;
  bool quarantined = false;
  bool distrusted = false;  // others contradicted it: in quarantine while this incarnation lasts
  std::shared_ptr<const TemplateVersions> templates{};
  std::vector<std::string> lacks{};  // of CoreOptions.templates
  std::vector<LibraryVersion> libraries{};
  WorkerHealth health;
  int leases = 0;          // open ones that take a slot
  int open_builds = 0;     // open ones that do not
  int64_t report_ms = 0;   // its last report
  int64_t working_ms = 0;  // when it began what it has not handed over
  int64_t compiled = 0, measured = 0, built = 0;
  bool counts_compiles = false;  // reports the count itself (WorkerReport.compiled)
  int64_t said_compiles = 0;     // the count it reported last
  std::string sandbox, waiting;  // as it reports them

  bool takes_work() const {
    return (!draining || mutated(Mutation::kLeaseToDraining)) &&
           (!quarantined || mutated(Mutation::kTrustQuarantined));
  }
  bool has_free_slot() const { return takes_work() && leases < slots; }
  bool has_free_compiler() const { return takes_work() && open_builds < build_places; }
  bool only_builds() const { return !builds_for.empty(); }
  // How busy its compilers are, in thousandths of its places. REQUIRES: it has some.
  int build_load() const { return open_builds * 1'000 / build_places; }
  // Null: it does not have the library.
  const std::string* version_of(const std::string& library) const {
    const auto found = std::ranges::find(libraries, library, &LibraryVersion::name);
    return found == libraries.end() ? nullptr : &found->version;
  }
};

// Workers of equal hard facts.
struct WorkerClass {
  Target target;
  int members = 0;                          // connected, whether they take work or not
  std::set<WorkerId> serving;               // those that take work
  int complete = 0;                         // of those, how many lack no template
  std::set<std::pair<int, WorkerId>> idle;  // with a free slot, fewest leases first
};

// Workers that take work and build for the same hard facts.
struct BuilderClass {
  Target target;
  std::set<WorkerId> builders;
  int only = 0;                             // of those, how many have no device
  std::set<std::pair<int, WorkerId>> idle;  // with a place, least load first
};

// Whether a compiler for one target makes code for the other: a CPU's ISA includes it, a GPU's is that
// very one, and the toolkit is no newer than the other takes.
bool can_build(const Target& compiler, const Target& target);

// "cuda:sm_90a (cuda-13)": the hard facts, for people.
std::string describe(const Target& target);

class WorkerRegistry {
 public:
  explicit WorkerRegistry(const CoreOptions& options) : options_(options) {}

  void report(int64_t now_ms, const WorkerId& id, const WorkerReport& report,
              const std::shared_ptr<const TemplateVersions>& templates = nullptr);
  Worker* find(const WorkerId& id);
  void remove(const WorkerId& id);
  void order_drain(const WorkerId& id);
  void distrust(const WorkerId& id);  // and whoever comes under that name
  void set_leases(const WorkerId& id, int leases, int builds);
  const std::map<WorkerId, Worker>& all() const { return workers_; }
  const std::map<std::string, WorkerClass>& classes() const { return classes_; }
  const std::map<std::string, BuilderClass>& builder_classes() const { return builder_classes_; }
  // "w1 waits for ...": the first worker for `target` that says it waits, for people; else empty.
  std::string waiting_for(const Target& target) const;
  // Workers that came into quarantine since the last call.
  std::vector<WorkerId> take_quarantined() { return std::exchange(quarantined_, {}); }
  void tick(int64_t now_ms);

  // The workers that take new work for `target`: their number, and whether there is one besides
  // `except`.
  int count_for(const Target& target) const;
  bool serves(const Target& target, const WorkerId& except = {}) const;
  // Whether another worker besides `id` takes new work for `target`, and has the templates that
  // `id` has. O(classes) while some worker has all templates, else O(workers).
  bool serves_as(const Target& target, const WorkerId& id) const;
  // Whether a worker that takes new work for `target` has all templates; and this one.
  bool has_all_templates(const Target& target) const;
  bool has_template(const Target& target, const std::string& name) const;
  // Whether a worker that takes new work for `target` builds candidates of this template.
  bool has_builder(const Target& target, const std::string& template_name,
                   const WorkerId& except = {}) const;
  bool has_complete_builder(const Target& target) const;  // that has all templates
  // Whether a worker that takes new work for `target` tries what others built. `instead_of`: another
  // one than that, and one that has the templates which that has. O(workers).
  bool tries_built(const Target& target, const WorkerId& instead_of = {}) const;
  bool has_another_builder(const Target& target, const WorkerId& except) const;
  // Whether candidates for `target` are built apart from where they are tried, while one is tuned:
  // somebody tries them, all templates are built, and compilers of more than the worker that tries
  // them are there. Compiling disturbs what a CPU times, so that of a CPU's workers only those
  // without a device count. O(builders).
  bool builds_apart(const Target& target) const;
  int only_builders(const Target& target) const;  // that take work
  // Others could load what it built badly: it gets no work for a while.
  void built_badly(int64_t now_ms, const WorkerId& id);
  // Whether a worker besides `except` that takes new work for `target` has this library, at this
  // version unless that is empty. O(workers).
  bool has_library(const Target& target, const LibraryVersion& library,
                   const WorkerId& except = {}) const;
  bool has_any_library(const Target& target) const;
  // Whether a worker that takes new work for `target` may time finals. O(1) where all may.
  bool times_finals(const Target& target) const;
  void set_key(const WorkerId& id, const std::string& owner, const Standing& standing);
  // The factor by which times from `worker`'s device are multiplied before they are compared with
  // those of another device of its model: the model's reference divided by the worker's baseline
  // (not its latest reading: a drifting worker is in quarantine). The last kRemembered workers that
  // left are included, since records name them. 1 if unknown.
  double calibration(const WorkerId& worker) const;
  // The same for a record, from the calibration time that it names; if it names none, from the
  // worker that took it. Sets the reference of a model that this incarnation has not seen yet.
  double calibration(const TuningRecord& record);
  // The scale of such times: the calibration kernel's time on the reference device of `target`'s
  // model, in us; 0 if unknown.
  double reference_us(const Target& target) const;
  // Whether any worker of this incarnation could run code for `target`, also one that left.
  bool saw(const Target& target) const;
  std::vector<WorkerId> silent_since(int64_t time_ms) const;
  // Completes a GPU target without a device ("cuda:sm_90a") with the facts of a worker that can run
  // it, so that it has the keys of requests from such a machine: the first worker by name with that
  // very ISA, else the first by name. Returns any other target, or one without a worker, unchanged.
  Target resolve(const Target& target) const;
  // "cpu:x86-64-v4, cuda:sm_90a (cuda-13; 1 in quarantine)", or "none": for people.
  std::string targets() const;

 private:
  using Model = std::pair<std::string, std::string>;  // hard facts, device model
  template <class Predicate>
  bool some_serves(const Target& target, const Predicate& is_meant) const;
  template <class Predicate>
  bool some_builds(const Target& target, const Predicate& is_meant) const;
  static std::vector<Target> built_by(const Worker& worker);
  void leave_class(const WorkerId& id, const Worker& worker);
  void enter_class(const WorkerId& id, const Worker& worker);
  void judge(const WorkerId& id, Worker& worker);
  void judge_drifting();
  std::vector<std::string> lacking(const TemplateVersions* templates) const;
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
  static constexpr size_t kMaxClasses = 1'024;  // beyond it, empty classes are dropped
  static constexpr size_t kMaxModels = 4'096;   // beyond it, times are compared unscaled
  const CoreOptions& options_;
  std::set<WorkerId> waiting_;  // those whose reports say that they wait
  std::map<WorkerId, Worker> workers_;
  std::map<std::string, WorkerClass> classes_;  // by describe(); kept without workers for a while
  std::map<std::string, BuilderClass> builder_classes_;  // likewise; none is empty
  std::vector<WorkerId> quarantined_;
  std::set<WorkerId> distrusted_;
  std::set<WorkerId> screeners_;  // connected ones that time no finals
  // The calibration time of the first device of each model, connected or in a record. It only sets
  // the scale, so it never changes: times stay comparable while workers come and go.
  std::map<Model, double> reference_us_;
  std::map<WorkerId, Gone> gone_;    // workers that left, and may have come back since
  std::deque<WorkerId> gone_since_;  // in the order in which they left
};

}  // namespace kiln
