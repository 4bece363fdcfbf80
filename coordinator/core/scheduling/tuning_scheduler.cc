#include "coordinator/core/scheduling/tuning_scheduler.h"

#include <fmt/core.h>

#include <algorithm>

#include "coordinator/core/mutation.h"

namespace kiln {

std::string TuningScheduler::nobody_measures(const Target& target) const {
  const int builders = workers_.only_builders(target);
  if (builders == 0) return "no worker for " + describe(target);
  return fmt::format("no worker measures for {} ({} only {})", describe(target), builders,
                     builders == 1 ? "builds" : "build");
}

std::string TuningScheduler::waiting_for(const Target& target) const {
  return workers_.serves(target) ? workers_.waiting_for(target) : nobody_measures(target);
}

Status TuningScheduler::check_target(const Target& target) const {
  if (target.isa.empty())
    return fail(Code::kInvalidArgument,
                fmt::format("the target '{}' names no instruction set", target.to_string()));
  if (options_.max_waiting_for_worker_ms > 0 || workers_.serves(target)) return {};
  return fail(Code::kUnavailable, fmt::format("{}; workers are connected for: {}",
                                              nobody_measures(target), workers_.targets()));
}

void TuningScheduler::need(int64_t now_ms, const Digest& program, PlannedKernel planned,
                           const Tenants& tenants, const Target& target, Mode mode, Actions& out) {
  const Digest key = planned.key;
  auto found = tasks_.find(key);
  if (found == tasks_.end()) {
    // Raw times of several workers: made comparable, as those of the task's own results are.
    for (TuningRecord& record : planned.records) {
      const double calibration = workers_.calibration(record);
      for (double& us : record.measurement.samples_us) us *= calibration;
    }
    TuningTask task(std::move(planned), target, mode, leases_.new_epoch(), options_);
    task.created_ms = now_ms;
    if (unresolved_.contains(key)) task.was_handed_out();
    found = tasks_.emplace(key, std::move(task)).first;
    // Without a limit for waiting, check_target saw a worker before the plan was made, or none was
    // seen yet.
    found->second.was_served = options_.max_waiting_for_worker_ms == 0 && workers_.saw(target);
    if (const auto known = failures_.find(now_ms, key)) found->second.fail(*known);
  }
  found->second.set_tenants(program, tenants);
  found->second.retired_at = -1;
  settle(now_ms, found->second, out);
}

void TuningScheduler::set_tenants(const Digest& program, const Digest& kernel,
                                  const Tenants& tenants) {
  const auto found = tasks_.find(kernel);
  if (found == tasks_.end() || !found->second.programs().contains(program)) return;
  found->second.set_tenants(program, tenants);
  queue(found->second);
}

void TuningScheduler::release(const Digest& program, const Digest& kernel) {
  const auto found = tasks_.find(kernel);
  if (found == tasks_.end() || !found->second.remove_program(program)) return;
  TuningTask& task = found->second;
  if (!task.programs().empty()) return queue(task);
  unqueue(kernel);
  if (task.stage() == TuningTask::Stage::kFailed) {
    erase(kernel);
    return;
  }
  close_leases(task);
  task.recall(leases_.new_epoch());
  retire(task);
}

const TuningTask* TuningScheduler::find(const Digest& kernel) const {
  const auto found = tasks_.find(kernel);
  return found == tasks_.end() ? nullptr : &found->second;
}

std::vector<Digest> TuningScheduler::take_settled() {
  return std::exchange(settled_, {});
}

uint64_t TuningScheduler::plan_started() {
  plans_out_.insert(++plans_);
  return plans_;
}

void TuningScheduler::plan_finished(uint64_t ticket) {
  plans_out_.erase(ticket);
  forget_retired();
}

// No program needs it, and the store knows all its results: plans that start from now on need not
// find it here.
void TuningScheduler::retire(TuningTask& task) {
  if (!task.programs().empty() || task.unstored_records > 0 || task.retired_at >= 0 ||
      task.stage() == TuningTask::Stage::kStoring)
    return;
  task.retired_at = static_cast<int64_t>(plans_);
  retired_.emplace_back(plans_, task.key());
  forget_retired();
}

void TuningScheduler::forget_retired() {
  while (!retired_.empty() && (plans_out_.empty() || mutated(Mutation::kForgetTooEarly) ||
                               *plans_out_.begin() > retired_.front().first)) {
    const auto [since, key] = retired_.front();
    retired_.pop_front();
    const auto found = tasks_.find(key);
    if (found != tasks_.end() && found->second.retired_at == static_cast<int64_t>(since))
      erase(key);
  }
}

// ---- Events ----

void TuningScheduler::report(int64_t now_ms, ReportReceived event, Actions& out) {
  const WorkerId& id = event.worker;
  WorkerReport& report = event.report;
  workers_.report(now_ms, id, report, event.templates);
  workers_.set_key(id, event.owner, event.standing);
  Worker& reporter = *workers_.find(id);
  reporter.counts_compiles = report.compiled > 0;
  count_compiles(reporter, compiles_.newly(id, report.compiled));
  // A final lasts as long as it may, and a build needs no device: they say nothing about the latency
  // of one candidate.
  const bool timed = std::ranges::none_of(report.results, [&](const CandidateResult& result) {
    const Lease* lease = leases_.find(result.lease);
    return lease != nullptr &&
           (lease->kind == Job::Kind::kFinal || lease->kind == Job::Kind::kBuild);
  });
  StoreRecords store{id, {}, {}};
  for (CandidateResult& result : report.results)
    take_result(now_ms, id, std::move(result), store, out);
  if (!store.records.empty()) {
    Worker& worker = *workers_.find(id);
    const TuningTask* task = find(store.records.front().kernel_key);
    if (task != nullptr && timed)
      latency_.saw(task->target(), task->family(), static_cast<double>(now_ms - worker.working_ms),
                   static_cast<int>(store.records.size()));
    worker.working_ms = now_ms;
    out.push_back(std::move(store));
  }
  keep_leases(now_ms, id, report.leases, out);
  empty_quarantine(now_ms, out);
  changed_.insert(id);
  dispatch_due_ = true;
}

void TuningScheduler::count_compiles(Worker& worker, int64_t compiles) {
  compiled_ += compiles;
  worker.compiled += compiles;
}

void TuningScheduler::take_result(int64_t now_ms, const WorkerId& id, CandidateResult result,
                                  StoreRecords& store, Actions& out) {
  const ResultAck ack{result.lease, result.index};
  if (storing_.contains({ack.lease, ack.index})) return;  // acknowledged when it is durable
  Lease* lease = leases_.find(result.lease);
  const bool current =
      lease != nullptr && (lease->epoch == result.epoch || mutated(Mutation::kIgnoreEpoch));
  if (!current || lease->worker != id || lease->kernel != result.kernel_key ||
      std::erase(lease->outstanding, result.index) == 0) {
    if (!mutated(Mutation::kHoardStale)) acks_[id].push_back(ack);
    return;
  }
  if (mutated(Mutation::kTakeResultsTwice)) lease->outstanding.push_back(result.index);
  if (mutated(Mutation::kAckAtOnce)) acks_[id].push_back(ack);
  lease->seen = true;
  leases_.progressed(now_ms, *lease);
  const Job::Kind kind = lease->kind;
  if (lease->outstanding.empty()) close(lease->id);

  Worker& worker = *workers_.find(id);
  TuningTask& task = tasks_.at(result.kernel_key);
  const int retries = task.retries(), set_aside = task.abandoned();
  if (!worker.counts_compiles) count_compiles(worker, result.compiled ? 1 : 0);
  if (kind == Job::Kind::kScreen)
    device_times_.saw(task.target(), task.family(), result.verify_ms + result.measure_ms, 1);
  // Done again it costs a compile: no record says that it was done.
  const bool is_built = kind == Job::Kind::kBuild && result.verdict == Verdict::kOk;
  TuningRecord record = task.accept(std::move(result), kind,
                                    {{id, worker.owner},
                                     worker.toolkit,
                                     worker.only_builds() ? task.target() : worker.target,
                                     workers_.calibration(id),
                                     worker.standing});
  record.sentinel_us = worker.health.baseline_us();
  Dispatcher::add_version(record.schedule, task, worker);
  const bool measured = kind == Job::Kind::kScreen && !record.measurement.samples_us.empty();
  measured_ += measured;
  worker.measured += measured;
  retries_ += task.retries() - retries;
  count_abandoned(task, set_aside, id, out);
  drop_duplicate(task, ack.index, kind);
  if (is_built) {
    ++worker.built;
    acks_[id].push_back(ack);
    return settle(now_ms, task, out);
  }

  storing_.emplace(ResultId{ack.lease, ack.index}, task.key());
  ++task.unstored_records;
  store.records.push_back(std::move(record));
  store.acks.push_back(ack);
  settle(now_ms, task, out);
}

// A hedged candidate is settled: the other worker that has it need not go on.
void TuningScheduler::drop_duplicate(TuningTask& task, int candidate, Job::Kind kind) {
  if (mutated(Mutation::kKeepDuplicate)) return;
  if (task.candidates()[candidate].leases == 0 || !task.is_settled(candidate, kind)) return;
  for (const uint64_t id : leases_.of_kernel(task.key())) {
    Lease& lease = *leases_.find(id);
    if (std::erase(lease.outstanding, candidate) == 0) continue;
    task.release(candidate);
    if (lease.outstanding.empty()) close(id);
  }
}

void TuningScheduler::keep_leases(int64_t now_ms, const WorkerId& id,
                                  const std::vector<LeaseState>& reported, Actions& out) {
  for (uint64_t lease_id : leases_.of_worker(id)) {
    Lease* lease = leases_.find(lease_id);
    if (lease == nullptr) continue;  // closed with the task of one before it
    const auto state = std::find_if(reported.begin(), reported.end(), [&](const LeaseState& s) {
      return s.lease == lease_id && s.epoch == lease->epoch;
    });
    if (state == reported.end()) {
      // Orders not there yet are sent again, unless it takes none any more.
      if (lease->seen || workers_.find(id)->draining) take_back(now_ms, lease_id, lease->seen, out);
      continue;
    }
    lease->seen = true;
    if (state->done <= lease->done) continue;
    lease->done = state->done;
    leases_.progressed(now_ms, *lease);
  }
}

void TuningScheduler::take_back(int64_t now_ms, uint64_t lease_id, bool blamed, Actions& out) {
  Lease* found = leases_.find(lease_id);
  if (found == nullptr) return;
  const Lease lease = *found;  // a copy: it is closed first
  close(lease_id);
  TuningTask& task = tasks_.at(lease.kernel);
  const int retries = task.retries(), set_aside = task.abandoned();
  task.give_back(lease.outstanding, lease.kind, lease.worker, blamed, leases_.new_epoch());
  retries_ += task.retries() - retries;
  count_abandoned(task, set_aside, lease.worker, out);
  settle(now_ms, task, out);
}

void TuningScheduler::count_abandoned(const TuningTask& task, int before, const WorkerId& worker,
                                      Actions& out) {
  const int more = task.abandoned() - before;
  if (more == 0) return;
  abandoned_ += more;
  out.push_back(LogAbandoned{task.key(), task.family(), task.target(), worker, more});
}

void TuningScheduler::worker_gone(int64_t now_ms, const WorkerId& id, Actions& out) {
  workers_.remove(id);
  std::set<Digest> held;  // what it had begun
  for (uint64_t lease : leases_.of_worker(id))
    if (leases_.find(lease)->seen) held.insert(leases_.find(lease)->kernel);
  for (const Digest& kernel : held) lost_[kernel] = tasks_.at(kernel).worker_lost();
  for (uint64_t lease : leases_.of_worker(id)) take_back(now_ms, lease, true, out);
  acks_.erase(id);
  empty_quarantine(now_ms, out);
}

// Leases of workers that came into quarantine go to others: their times cannot be trusted.
void TuningScheduler::empty_quarantine(int64_t now_ms, Actions& out) {
  for (const WorkerId& id : workers_.take_quarantined()) {
    changed_.insert(id);
    for (uint64_t lease : leases_.of_worker(id)) take_back(now_ms, lease, false, out);
  }
}

void TuningScheduler::drain(const WorkerId& id) {
  if (workers_.find(id) == nullptr) return;
  workers_.order_drain(id);
  changed_.insert(id);
}

void TuningScheduler::kernel_stored(const Digest& kernel, const Status& status) {
  const auto found = tasks_.find(kernel);
  if (found == tasks_.end() || found->second.stage() != TuningTask::Stage::kStoring) return;
  if (!status) ++store_failures_;
  found->second.set_stored(status.has_value());
  settled_.push_back(kernel);
  retire(found->second);
}

void TuningScheduler::records_stored(const WorkerId& worker, const std::vector<ResultAck>& acks) {
  for (const ResultAck& ack : acks) {
    const auto found = storing_.find({ack.lease, ack.index});
    if (found == storing_.end()) continue;
    const auto task = tasks_.find(found->second);
    storing_.erase(found);
    if (workers_.find(worker) != nullptr) {
      acks_[worker].push_back(ack);
      changed_.insert(worker);
    }
    if (task == tasks_.end()) continue;
    --task->second.unstored_records;
    retire(task->second);
  }
}

void TuningScheduler::tick(int64_t now_ms, Actions& out) {
  for (const WorkerId& id : workers_.silent_since(now_ms - options_.worker_timeout_ms))
    worker_gone(now_ms, id, out);
  for (uint64_t lease : leases_.without_progress_since(now_ms - options_.lease_timeout_ms))
    take_back(now_ms, lease, true, out);
  workers_.tick(now_ms);
  empty_quarantine(now_ms, out);
  look_for_voters(now_ms, out);
  settle_with_other_builders(now_ms, out);
  fail_unserved(now_ms, out);
  dispatcher_.hedge_late(now_ms, changed_);
  dispatch_due_ = true;  // somebody may have left the quarantine
}

// ---- Work ----

// After anything that a task learnt: moves it on and sees to what its stage asks for.
void TuningScheduler::settle(int64_t now_ms, TuningTask& task, Actions& out) {
  using Stage = TuningTask::Stage;
  const bool failed_before = task.stage() == Stage::kFailed;
  withdraw_libraries(task);
  task.advance(*this);
  if (withdraw_libraries(task)) task.advance(*this);
  hear_disputes(task, out);
  hear_builds(now_ms, task);
  if (task.has_variants()) holding_.insert(task.key());
  if (task.stage() < Stage::kStoring) {
    queue(task);
    return;
  }
  close_leases(task);
  unqueue(task.key());
  const auto scale_of = [this](const Target& device) { return workers_.reference_us(device); };
  if (auto store = task.take_winner(scale_of)) out.push_back(*std::move(store));
  if (task.stage() == Stage::kFailed && !failed_before)
    failures_.remember(now_ms, task.key(), task.error());
  if (task.stage() != Stage::kStoring) settled_.push_back(task.key());
}

void TuningScheduler::queue(const TuningTask& task) {
  if (task.stage() >= TuningTask::Stage::kStoring || task.waiting() == 0) return;
  // A final needs no compiler: devices have it while they wait for what is built.
  // Variants go while the device has their inputs and reference.
  const bool is_final = task.stage() == TuningTask::Stage::kFinals;
  const auto turn =
      is_final || task.has_judged_variants() ? WorkQueue::Turn::kNext : WorkQueue::Turn::kLast;
  const auto place = [&](WorkQueue& queue, bool waits) {
    if (waits)
      queue.add(task.target(), task.tenants(), task.key(), turn);
    else
      queue.remove(task.key());
  };
  place(queue_, task.waiting_for_device() > 0 || Dispatcher::devices_build(task));
  place(builds_, task.waiting_for_build() > 0);
  dispatcher_.set_waiting(task);
  dispatch_due_ = true;
}

void TuningScheduler::unqueue(const Digest& kernel) {
  queue_.remove(kernel);
  builds_.remove(kernel);
}

void TuningScheduler::close(uint64_t lease_id) {
  const WorkerId worker = leases_.find(lease_id)->worker;
  leases_.close(lease_id);
  workers_.set_leases(worker, leases_.count(worker), leases_.count_builds(worker));
  changed_.insert(worker);
  dispatch_due_ = true;
}

void TuningScheduler::close_leases(const TuningTask& task) {
  for (uint64_t id : leases_.of_kernel(task.key())) close(id);
}

void TuningScheduler::dispatch(int64_t now_ms, Actions& out) {
  while (std::exchange(dispatch_due_, false)) {
    if (!builds_.empty() && unverified_bytes_ < options_.max_unverified_bytes)
      dispatcher_.lease_builds(now_ms, changed_);
    if (!queue_.empty()) dispatcher_.lease_work(now_ms, changed_);
    queue_variants();
  }
  for (const WorkerId& id : std::exchange(changed_, {})) {
    if (workers_.find(id) == nullptr) continue;
    SendOrders send{id, dispatcher_.orders_for(id)};
    if (const auto acks = acks_.find(id); acks != acks_.end()) {
      send.orders.acks = std::move(acks->second);
      acks_.erase(acks);
    }
    out.push_back(std::move(send));
  }
}

// Queues the variants of one task, which are then dispatched before the next task's: no more is tried
// than there is room for.
void TuningScheduler::queue_variants() {
  if (holding_.empty() || !dispatcher_.has_idle_workers()) return;
  for (auto held = holding_.begin(); held != holding_.end();) {
    const auto found = tasks_.find(*held);
    if (found == tasks_.end() || !found->second.has_variants()) {
      held = holding_.erase(held);
      continue;
    }
    TuningTask& task = found->second;
    if (!task.programs().empty() && dispatcher_.may_queue_variants(task)) {
      holding_.erase(held);
      if (task.queue_variants()) return queue(task);
      return queue_variants();
    }
    ++held;
  }
}

void TuningScheduler::add_stats(int64_t now_ms, Stats& stats) const {
  stats.candidates_compiled += compiled_;
  stats.candidates_measured += measured_;
  stats.retries += retries_;
  stats.set_aside += abandoned_;
  stats.hedged += dispatcher_.hedged();
  stats.store_failures += store_failures_;
  stats.candidates_queued += candidates_queued();
  stats.withdrawn += withdrawn_;
  for (const auto& [id, worker] : workers_.all()) {
    WorkerStats row;
    row.name = id;
    row.target = worker.target;
    row.toolkit = worker.toolkit;
    row.leases = worker.leases + worker.open_builds;
    row.role = worker.only_builds() ? "build" : "measure";
    for (const Target& target : worker.builds_for)
      row.builds_for += (row.builds_for.empty() ? "" : ", ") + target.to_string();
    row.built = worker.built;
    row.compiled = worker.compiled;
    row.measured = worker.measured;
    row.state = worker.quarantined ? "quarantined" : worker.draining ? "draining" : "serving";
    row.reason = worker.distrusted ? "other workers contradicted it" : worker.health.reason();
    row.sentinel_us = worker.health.sentinel_us();
    if (worker.standing != Standing{}) row.trust = worker.standing.is_enough ? "alone" : "screens";
    row.sandbox = worker.sandbox;
    row.waiting = worker.waiting;
    row.idle_s = static_cast<double>(now_ms - worker.report_ms) / 1000;
    stats.workers.push_back(std::move(row));
  }
}

}  // namespace kiln
