#include "coordinator/core/scheduling/dispatcher.h"

#include <algorithm>

#include "compiler_core/base/math.h"
#include "coordinator/core/mutation.h"

namespace kiln {
namespace {

constexpr double kUnknownLatencyMs = 300;  // of a candidate, until some were seen
constexpr double kUnknownDeviceMs = 10;    // the same of its device
constexpr int kMaxRefusals = 64;           // of one class and step
// A worker with so many leases waits for whole ones. With one alone it would have nothing from its end
// until the next comes.
constexpr int kGatheredLeases = 2;
constexpr double kLeastLeaseMs = 50;   // of a GPU's time, while more of the workload is built
constexpr double kLeastShareMs = 250;  // the same of one that does not have the workload open
constexpr int kMostLeasesAhead = 3;    // of what is built: a device needs no more than the next
// Binaries of the jobs of one WorkerOrders, which is one message; what is left goes with the next.
constexpr size_t kMaxOrderedBytes = kMaxMessageBytes / 4;

}  // namespace

void Dispatcher::lease_work(int64_t now_ms, std::set<WorkerId>& changed) {
  for (const auto& [name, workers] : workers_.classes()) {
    for (const bool is_sharing : {false, true}) {
      is_sharing_ = is_sharing;
      const bool has_idle =
          !workers.idle.empty() && (!is_sharing || workers.idle.begin()->first == 0);
      if (has_idle)
        lease_to_class(now_ms, workers.target, workers.idle, queue_, &Dispatcher::lease_to,
                       changed);
      if (workers.target.backend != Backend::kCuda) break;
    }
  }
}

void Dispatcher::lease_builds(int64_t now_ms, std::set<WorkerId>& changed) {
  for (const auto& [name, workers] : workers_.builder_classes())
    if (!workers.idle.empty())
      lease_to_class(now_ms, workers.target, workers.idle, builds_, &Dispatcher::lease_build_to,
                     changed);
}

bool Dispatcher::has_idle_workers() const {
  const auto idle = [this](const auto& named) { return is_idle(named.second); };
  return std::ranges::any_of(workers_.classes(), idle) ||
         std::ranges::any_of(workers_.builder_classes(), idle);
}

bool Dispatcher::may_queue_variants(const TuningTask& task) const {
  if (task.is_built_apart())
    return !is_supplied(task) &&
           std::ranges::any_of(workers_.builder_classes(), [&](const auto& named) {
             return is_idle(named.second) && can_build(named.second.target, task.target());
           });
  return std::ranges::any_of(workers_.classes(), [&](const auto& named) {
    return is_idle(named.second) && named.second.target.can_run(task.target());
  });
}

// One lease at a time, to the worker that is the least busy, so that work is spread.
void Dispatcher::lease_to_class(int64_t now_ms, const Target& server, const Idle& idle,
                                WorkQueue& queue, LeaseTo lease, std::set<WorkerId>& changed) {
  std::set<WorkerId> refused;  // what is left is for others than them
  auto next = idle.begin();    // of those before it, all refused
  while (queue.has_work_for(server)) {
    while (next != idle.end() && refused.contains(next->second)) ++next;
    if (next == idle.end() || std::ssize(refused) >= kMaxRefusals) return;
    const WorkerId id = next->second;
    if (lease_next(now_ms, id, server, queue, lease)) {
      changed.insert(id);
      next = idle.begin();  // a lease moves it
    } else {
      refused.insert(id);
    }
  }
}

bool Dispatcher::lease_next(int64_t now_ms, const WorkerId& id, const Target& server,
                            WorkQueue& queue, LeaseTo lease) {
  TuningTask* served = nullptr;
  const bool leased = queue.serve_next(server, [&](const Digest& kernel) {
    served = &tasks_.at(kernel);
    return (this->*lease)(now_ms, id, *served);
  });
  if (!leased) return false;
  set_waiting(*served);
  return true;
}

void Dispatcher::set_waiting(const TuningTask& task) {
  queue_.set_waiting(task.key(), task.waiting_for_device(),
                     devices_build(task) ? task.waiting_for_build() : 0, device_ms(task));
  builds_.set_waiting(task.key(), task.waiting_for_build());
}

int Dispatcher::batch_limit(const TuningTask& task) const {
  const auto share = static_cast<int>(ceil_div(task.waiting(), shares(task)));
  return std::clamp(share, 1, largest_batch(task));
}

int Dispatcher::largest_batch(const TuningTask& task) const {
  const Target& target = task.target();
  const bool is_gpu = target.backend == Backend::kCuda;
  int most = is_gpu ? options_.gpu_batch_size : options_.batch_size;
  const LatencyEstimator& latency = is_gpu ? device_times_ : latency_;
  if (const auto candidate_ms = latency.median_ms(target, task.family()))
    most = static_cast<int>(std::min<double>(
        options_.max_batch,
        static_cast<double>(options_.lease_work_ms) / std::max(*candidate_ms, 1e-3)));
  return std::clamp(most, 1, std::max(1, options_.max_batch));
}

// Into how many leases the waiting candidates of `task` are divided: several only where devices would
// otherwise have nothing.
int Dispatcher::shares(const TuningTask& task) const {
  const Target& target = task.target();
  const int devices = workers_.count_for(target);
  if (queue_.kernels_waiting(target) >= devices) return 1;
  return std::max(1, devices - (leases_.count(task.key()) - leases_.count_builds(task.key())));
}

// Whether more of the task is being built, so that a worker that has something to do may wait for a
// whole lease of it.
bool Dispatcher::is_gathering(const TuningTask& task, int most) const {
  return task.waiting_for_device() < most &&
         (task.waiting_for_build() > 0 || leases_.count_builds(task.key()) > 0);
}

// Whether a device leaves what there is of the task until it is more. Even one that has nothing to do
// waits for some of it: what it would try meanwhile is tried as soon.
bool Dispatcher::is_for_later(const Worker& worker, const TuningTask& task) const {
  const bool is_gpu = task.target().backend == Backend::kCuda;
  if (is_gpu && task.is_built_apart() && worker.leases >= kMostLeasesAhead) return true;
  if (!is_gathering(task, largest_batch(task))) return false;
  return worker.leases >= kGatheredLeases || (is_gpu && device_ms(task) < kLeastLeaseMs);
}

// Whether another device has the inputs and reference of what this one might get, and will have the
// rest of it too, unless this one would have nothing.
bool Dispatcher::is_anothers(const WorkerId& id, const Worker& worker,
                             const TuningTask& task) const {
  if (task.target().backend != Backend::kCuda || task.home.empty() || task.home == id) return false;
  const Worker* home = workers_.find(task.home);
  if (home == nullptr || !home->takes_work() || task.is_confirming()) return false;
  if (task.only_retries() || !lacking(*home, task).empty()) return false;  // it may not have those
  if (task.stage() == TuningTask::Stage::kFinals && !home->standing.times_finals) return false;
  if (worker.leases > 0) return true;
  if (is_gathering(task, largest_batch(task)))
    return !is_sharing_ || (home->leases > 0 && device_ms(task) < kLeastShareMs);
  return !is_sharing_ && queue_.kernels_waiting(task.target()) >= workers_.count_for(task.target());
}

// The time that the waiting candidates of the task take a device.
double Dispatcher::device_ms(const TuningTask& task) const {
  return task.waiting_for_device() *
         device_times_.median_ms(task.target(), task.family()).value_or(kUnknownDeviceMs);
}

double Dispatcher::lease_to(int64_t now_ms, const WorkerId& id, TuningTask& task) {
  const Worker& worker = *workers_.find(id);
  if (task.stage() == TuningTask::Stage::kFinals && !worker.standing.times_finals &&
      !mutated(Mutation::kTrustScreeners))
    return 0;
  if (!may_race(id, task)) return 0;
  if (task.has_built() && !worker.builds) return 0;
  if (task.is_confirming() && task.asked() >= 0 &&
      !may_vote(id, worker, task, task.asked(), task.asked_among()))
    return 0;
  if (is_for_later(worker, task) || is_anothers(id, worker, task)) return 0;
  const bool builds_itself = devices_build(task) && worker.leases == 0;
  return open_batch(now_ms, id, task,
                    task.take(id, batch_limit(task), has_stand_in(id, task), left_out(worker, task),
                              builds_itself));
}

// The work leased, in milliseconds of one worker.
double Dispatcher::open_batch(int64_t now_ms, const WorkerId& id, TuningTask& task,
                              TuningTask::Batch batch) {
  if (batch.candidates.empty()) return 0;
  task.was_served = true;
  if (batch.kind == Job::Kind::kScreen) {
    const Worker* home = workers_.find(task.home);
    if (home == nullptr || !home->takes_work()) task.home = id;
  }
  const auto count = static_cast<double>(batch.candidates.size());
  Lease lease;
  lease.worker = id;
  lease.kind = batch.kind;
  lease.candidates = std::move(batch.candidates);
  open(now_ms, task, std::move(lease));
  return count * latency_.median_ms(task.target(), task.family()).value_or(kUnknownLatencyMs);
}

// Somebody waits for the build of a `default` program itself; others are for a device, which has
// enough for now or not.
double Dispatcher::lease_build_to(int64_t now_ms, const WorkerId& id, TuningTask& task) {
  const Worker& worker = *workers_.find(id);
  if (!task.waits_for_build()) {
    if (task.target().backend == Backend::kCpu && !worker.only_builds()) return 0;
    if (is_supplied(task)) return 0;
  }
  return open_batch(now_ms, id, task,
                    task.take_build(id, has_stand_in(id, task), left_out(worker, task)));
}

// Whether the devices have as much to try as they can in build_ahead_ms, whole kernels included.
bool Dispatcher::is_supplied(const TuningTask& task) const {
  const Target& target = task.target();
  const auto devices = static_cast<double>(workers_.count_for(target));
  const double ready_ms = queue_.ms_waiting(target);
  return ready_ms > 0 && ready_ms >= static_cast<double>(options_.build_ahead_ms) * devices;
}

bool Dispatcher::may_vote(const WorkerId& id, const Worker& worker, const TuningTask& task,
                          int candidate, Among among) const {
  if (!worker.standing.times_finals && !mutated(Mutation::kTrustScreeners)) return false;
  if (mutated(Mutation::kConfirmWithOneself)) among = Among::kWorkers;
  const std::vector<std::string> lacks = lacking(worker, task);
  return std::ranges::find(lacks, task.candidates().template_of(candidate)) == lacks.end() &&
         task.may_vote(candidate, among, {id, worker.owner}, worker.toolkit);
}

// Whether another worker can have whatever of the task this one can.
bool Dispatcher::has_stand_in(const WorkerId& id, const TuningTask& task) const {
  if (task.waits_for_build())
    return workers_.has_builder(task.target(), task.candidates().template_of(task.choice()), id);
  if (workers_.find(id)->only_builds()) return workers_.has_another_builder(task.target(), id);
  if (task.has_built()) return workers_.tries_built(task.target(), id);
  return workers_.serves_as(task.target(), id) &&
         std::ranges::all_of(task.libraries(), [&](const auto& called) {
           return workers_.find(id)->version_of(called.second) == nullptr ||
                  workers_.has_library(task.target(), {called.second, ""}, id);
         });
}

// The templates of which `worker` gets no candidates: it has them not, or not what they call.
std::vector<std::string> Dispatcher::lacking(const Worker& worker, const TuningTask& task) {
  std::vector<std::string> lacks = worker.lacks;
  for (const auto& [name, library] : task.libraries())
    if (worker.version_of(library) == nullptr) lacks.push_back(name);
  if (std::ranges::find(worker.lacks, kOfferedTemplate) != worker.lacks.end())
    for (const auto& [name, offered] : task.offered()) lacks.push_back(name);
  return lacks;
}

// The same, for what is leased to it.
std::vector<std::string> Dispatcher::left_out(const Worker& worker, const TuningTask& task) {
  return mutated(Mutation::kLeaseWithoutTemplate) ? std::vector<std::string>()
                                                  : lacking(worker, task);
}

// Finalists that call a library are raced where it has the version that was screened, while such a
// worker is there; elsewhere they would be refused.
bool Dispatcher::may_race(const WorkerId& id, const TuningTask& task) const {
  return std::ranges::all_of(task.libraries_of_final(), [&](const LibraryVersion& called) {
    const std::string* version = workers_.find(id)->version_of(called.name);
    return (version != nullptr && *version == called.version) ||
           !workers_.has_library(task.target(), called);
  });
}

void Dispatcher::open(int64_t now_ms, const TuningTask& task, Lease lease) {
  lease.epoch = task.epoch();
  lease.kernel = task.key();
  const WorkerId id = lease.worker;
  leases_.open(now_ms, std::move(lease));
  Worker& worker = *workers_.find(id);
  if (worker.leases == 0) worker.working_ms = now_ms;
  workers_.set_leases(id, leases_.count(id), leases_.count_builds(id));
}

void Dispatcher::add_version(Schedule& schedule, const TuningTask& task, const Worker& worker) {
  const auto library = task.libraries().find(schedule.template_name);
  if (library == task.libraries().end()) return;
  if (const std::string* version = worker.version_of(library->second))
    add_library_version(schedule, *version);
}

// ---- Stragglers ----

void Dispatcher::hedge_late(int64_t now_ms, std::set<WorkerId>& changed) {
  std::vector<uint64_t> late;
  for (const auto& [id, lease] : leases_.all())
    if (is_late(now_ms, lease)) late.push_back(id);
  for (const uint64_t id : late) {
    Lease& slow = *leases_.find(id);
    TuningTask& task = tasks_.at(slow.kernel);
    const WorkerId* second = second_worker(task, slow);
    if (second == nullptr) continue;
    Lease lease;
    lease.worker = *second;
    lease.kind = slow.kind;
    lease.candidates = slow.outstanding;
    lease.hedged = slow.hedged = true;
    changed.insert(lease.worker);
    task.hedge(lease.candidates);
    open(now_ms, task, std::move(lease));
    ++hedged_;
  }
}

bool Dispatcher::is_late(int64_t now_ms, const Lease& lease) const {
  if (lease.hedged || lease.kind == Job::Kind::kFinal) return false;
  if (lease.kind == Job::Kind::kBuild && !mutated(Mutation::kBuildTwice)) return false;
  const int64_t age_ms = now_ms - lease.opened_ms;
  if (age_ms < options_.hedge_least_ms) return false;
  const TuningTask& task = tasks_.at(lease.kernel);
  if (task.is_confirming()) return false;  // not every worker may have it
  if (task.waiting() > 0) return false;    // not its last ones
  const auto candidate_ms = latency_.median_ms(task.target(), task.family());
  if (!candidate_ms) return false;
  size_t held = 0;  // it may do its other leases first
  for (const uint64_t id : leases_.of_worker(lease.worker))
    held += leases_.find(id)->candidates.size();
  return static_cast<double>(age_ms) >
         options_.hedge_after * *candidate_ms * static_cast<double>(held);
}

const WorkerId* Dispatcher::second_worker(const TuningTask& task, const Lease& slow) const {
  const auto has_templates = [&](const WorkerId& id) {
    if (!workers_.find(id)->builds && std::ranges::any_of(slow.outstanding, [&](int candidate) {
          return task.is_unverified(candidate);
        }))
      return false;
    const std::vector<std::string> lacks = lacking(*workers_.find(id), task);
    return std::ranges::none_of(slow.outstanding, [&](int candidate) {
      const std::string& name = task.candidates().template_of(candidate);
      return std::ranges::find(lacks, name) != lacks.end();
    });
  };
  for (const auto& [name, workers] : workers_.classes()) {
    if (!workers.target.can_run(task.target())) continue;
    for (const auto& [leases, id] : workers.idle)
      if ((id != slow.worker || mutated(Mutation::kHedgeToSelf)) && has_templates(id)) return &id;
  }
  return nullptr;
}

// ---- Orders ----

WorkerOrders Dispatcher::orders_for(const WorkerId& id) {
  WorkerOrders orders;
  size_t bytes = 0;
  for (const uint64_t lease_id : leases_.of_worker(id)) {
    const Lease& lease = *leases_.find(lease_id);
    orders.leases.push_back(lease_id);
    if (lease.seen) continue;
    if (bytes > kMaxOrderedBytes) continue;
    const TuningTask& task = tasks_.at(lease.kernel);
    Job job;
    job.lease = lease.id;
    job.epoch = lease.epoch;
    job.kind = lease.kind;
    task.describe(job, workers_.calibration(id));
    for (const int candidate : lease.candidates) {
      job.candidates.push_back(task.job(candidate, lease.kind));
      add_version(job.candidates.back().schedule, task, *workers_.find(id));
      bytes += job.candidates.back().binary.size();
    }
    orders.jobs.push_back(std::move(job));
  }
  orders.drain = workers_.find(id)->drain_ordered && !mutated(Mutation::kForgetToDrain);
  return orders;
}

}  // namespace kiln
