#include "coordinator/core/scheduling/tuning_floor.h"

#include <fmt/core.h>

#include <algorithm>

#include "coordinator/core/planted.h"

namespace kiln {

Status TuningFloor::check_target(const Target& target) const {
  if (target.isa.empty())
    return fail(Code::kInvalidArgument,
                fmt::format("the target '{}' names no instruction set", target.to_string()));
  if (options_.max_waiting_for_worker_ms > 0 || workers_.serves(target)) return {};
  return fail(Code::kUnavailable, fmt::format("no worker for {}; the workers there are have: {}",
                                              describe(target), workers_.targets()));
}

void TuningFloor::need(int64_t now_ms, const Digest& program, PlannedKernel planned,
                       const Demand& demand, const Target& target, Mode mode, Actions& out) {
  const Digest key = planned.key;
  auto found = flights_.find(key);
  if (found == flights_.end()) {
    // Raw times of whoever took them: made comparable, as those of the flight's own results are.
    for (TuningRecord& record : planned.records) {
      const double calibration = workers_.calibration(record);
      for (double& us : record.measurement.samples_us) us *= calibration;
    }
    KernelFlight flight(std::move(planned), target, mode, leases_.new_epoch(), options_);
    flight.created_ms = now_ms;
    found = flights_.emplace(key, std::move(flight)).first;
    // Without a limit for waiting, check_target saw a worker before the plan was made, or none was
    // seen yet.
    found->second.was_served = options_.max_waiting_for_worker_ms == 0 && workers_.saw(target);
    if (const auto known = failures_.find(now_ms, key)) found->second.fail(*known);
  }
  found->second.set_demand(program, demand);
  found->second.retired_at = -1;
  settle(now_ms, found->second, out);
}

void TuningFloor::set_demand(const Digest& program, const Digest& kernel, const Demand& demand) {
  const auto found = flights_.find(kernel);
  if (found == flights_.end() || !found->second.programs().contains(program)) return;
  found->second.set_demand(program, demand);
  queue(found->second);
}

void TuningFloor::release(const Digest& program, const Digest& kernel) {
  const auto found = flights_.find(kernel);
  if (found == flights_.end() || !found->second.remove_demand(program)) return;
  KernelFlight& flight = found->second;
  if (!flight.programs().empty()) return queue(flight);
  queue_.remove(kernel);
  if (flight.stage() == KernelFlight::Stage::kFailed) {
    flights_.erase(found);
    return;
  }
  close_leases(flight);
  flight.recall(leases_.new_epoch());
  retire(flight);
}

const KernelFlight* TuningFloor::find(const Digest& kernel) const {
  const auto found = flights_.find(kernel);
  return found == flights_.end() ? nullptr : &found->second;
}

std::vector<Digest> TuningFloor::take_settled() {
  return std::exchange(settled_, {});
}

uint64_t TuningFloor::plan_started() {
  plans_out_.insert(++plans_);
  return plans_;
}

void TuningFloor::plan_finished(uint64_t ticket) {
  plans_out_.erase(ticket);
  forget_retired();
}

// Nobody needs it, and the store knows all that it knows: plans that start from now on need not
// find it here.
void TuningFloor::retire(KernelFlight& flight) {
  if (!flight.programs().empty() || flight.unstored_records > 0 || flight.retired_at >= 0 ||
      flight.stage() == KernelFlight::Stage::kStoring)
    return;
  flight.retired_at = static_cast<int64_t>(plans_);
  retired_.emplace_back(plans_, flight.key());
  forget_retired();
}

void TuningFloor::forget_retired() {
  while (!retired_.empty() && (plans_out_.empty() || planted(PlantedBug::kForgetTooEarly) ||
                               *plans_out_.begin() > retired_.front().first)) {
    const auto [since, key] = retired_.front();
    retired_.pop_front();
    const auto found = flights_.find(key);
    if (found != flights_.end() && found->second.retired_at == static_cast<int64_t>(since))
      flights_.erase(found);
  }
}

// ---- Events ----

void TuningFloor::report(int64_t now_ms, const WorkerId& id, WorkerReport report, Actions& out) {
  workers_.report(now_ms, id, report);
  Worker& reporter = *workers_.find(id);
  reporter.counts_compiles = report.compiled > 0;
  count_compiles(reporter, compiles_.newly(id, report.compiled));
  // A final takes as long as it was given: it says nothing of how long a candidate takes.
  const bool paced = std::ranges::none_of(report.results, [&](const CandidateResult& result) {
    const Lease* lease = leases_.find(result.lease);
    return lease != nullptr && lease->kind == Job::Kind::kFinal;
  });
  StoreRecords store{id, {}, {}};
  for (CandidateResult& result : report.results)
    take_result(now_ms, id, std::move(result), store, out);
  if (!store.records.empty()) {
    Worker& worker = *workers_.find(id);
    const KernelFlight* flight = find(store.records.front().kernel_key);
    if (flight != nullptr && paced)
      pace_.saw(flight->target(), flight->family(), now_ms - worker.working_ms,
                static_cast<int>(store.records.size()));
    worker.working_ms = now_ms;
    out.push_back(std::move(store));
  }
  keep_leases(now_ms, id, report.leases, out);
  empty_quarantine(now_ms, out);
  changed_.insert(id);
  dispatch_due_ = true;
}

void TuningFloor::count_compiles(Worker& worker, int64_t compiles) {
  compiled_ += compiles;
  worker.compiled += compiles;
}

void TuningFloor::take_result(int64_t now_ms, const WorkerId& id, CandidateResult result,
                              StoreRecords& store, Actions& out) {
  const ResultAck ack{result.lease, result.index};
  if (storing_.contains({ack.lease, ack.index})) return;  // acknowledged when it is durable
  Lease* lease = leases_.find(result.lease);
  const bool current =
      lease != nullptr && (lease->epoch == result.epoch || planted(PlantedBug::kIgnoreEpoch));
  if (!current || lease->worker != id || lease->kernel != result.kernel_key ||
      std::erase(lease->outstanding, result.index) == 0) {
    if (!planted(PlantedBug::kHoardStale)) acks_[id].push_back(ack);
    return;
  }
  if (planted(PlantedBug::kTakeResultsTwice)) lease->outstanding.push_back(result.index);
  if (planted(PlantedBug::kAckAtOnce)) acks_[id].push_back(ack);
  lease->seen = true;
  leases_.progressed(now_ms, *lease);
  const Job::Kind kind = lease->kind;
  if (lease->outstanding.empty()) close(lease->id);

  Worker& worker = *workers_.find(id);
  KernelFlight& flight = flights_.at(result.kernel_key);
  const int retries = flight.retries(), set_aside = flight.set_aside();
  if (!worker.counts_compiles) count_compiles(worker, result.compiled ? 1 : 0);
  TuningRecord record =
      flight.accept(std::move(result), kind, id, worker.target, workers_.calibration(id));
  record.sentinel_us = worker.health.baseline_us();
  const bool measured = kind == Job::Kind::kScreen && !record.measurement.samples_us.empty();
  measured_ += measured;
  worker.measured += measured;
  retries_ += flight.retries() - retries;
  count_set_aside(flight, set_aside, id, out);
  drop_twin(flight, ack.index, kind);

  storing_.emplace(ResultId{ack.lease, ack.index}, flight.key());
  ++flight.unstored_records;
  store.records.push_back(std::move(record));
  store.acks.push_back(ack);
  settle(now_ms, flight, out);
}

// A hedged candidate is settled: whoever else has it need not go on.
void TuningFloor::drop_twin(KernelFlight& flight, int candidate, Job::Kind kind) {
  if (planted(PlantedBug::kKeepTwin)) return;
  if (flight.candidates()[candidate].leases == 0 || !flight.is_settled(candidate, kind)) return;
  for (const uint64_t id : leases_.of_kernel(flight.key())) {
    Lease& lease = *leases_.find(id);
    if (std::erase(lease.outstanding, candidate) == 0) continue;
    flight.release(candidate);
    if (lease.outstanding.empty()) close(id);
  }
}

void TuningFloor::keep_leases(int64_t now_ms, const WorkerId& id,
                              const std::vector<LeaseState>& reported, Actions& out) {
  for (uint64_t lease_id : leases_.of_worker(id)) {
    Lease* lease = leases_.find(lease_id);
    if (lease == nullptr) continue;  // closed with the flight of one before it
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

void TuningFloor::take_back(int64_t now_ms, uint64_t lease_id, bool blamed, Actions& out) {
  Lease* found = leases_.find(lease_id);
  if (found == nullptr) return;
  const Lease lease = *found;  // a copy: it is closed first
  close(lease_id);
  KernelFlight& flight = flights_.at(lease.kernel);
  const int retries = flight.retries(), set_aside = flight.set_aside();
  flight.give_back(lease.outstanding, lease.kind, lease.worker, blamed, leases_.new_epoch());
  retries_ += flight.retries() - retries;
  count_set_aside(flight, set_aside, lease.worker, out);
  settle(now_ms, flight, out);
}

void TuningFloor::count_set_aside(const KernelFlight& flight, int before, const WorkerId& worker,
                                  Actions& out) {
  const int more = flight.set_aside() - before;
  if (more == 0) return;
  set_aside_ += more;
  out.push_back(LogSetAside{flight.key(), flight.family(), flight.target(), worker, more});
}

void TuningFloor::worker_gone(int64_t now_ms, const WorkerId& id, Actions& out) {
  workers_.remove(id);
  for (uint64_t lease : leases_.of_worker(id)) take_back(now_ms, lease, true, out);
  acks_.erase(id);
  empty_quarantine(now_ms, out);
}

// What those who came into quarantine have is given elsewhere: nobody trusts their times.
void TuningFloor::empty_quarantine(int64_t now_ms, Actions& out) {
  for (const WorkerId& id : workers_.take_quarantined()) {
    changed_.insert(id);
    for (uint64_t lease : leases_.of_worker(id)) take_back(now_ms, lease, false, out);
  }
}

void TuningFloor::drain(const WorkerId& id) {
  if (workers_.find(id) == nullptr) return;
  workers_.order_drain(id);
  changed_.insert(id);
}

void TuningFloor::kernel_stored(const Digest& kernel, const Status& status) {
  const auto found = flights_.find(kernel);
  if (found == flights_.end() || found->second.stage() != KernelFlight::Stage::kStoring) return;
  if (!status) ++store_failures_;
  found->second.set_stored(status.has_value());
  settled_.push_back(kernel);
  retire(found->second);
}

void TuningFloor::records_stored(const WorkerId& worker, const std::vector<ResultAck>& acks) {
  for (const ResultAck& ack : acks) {
    const auto found = storing_.find({ack.lease, ack.index});
    if (found == storing_.end()) continue;
    const auto flight = flights_.find(found->second);
    storing_.erase(found);
    if (workers_.find(worker) != nullptr) {
      acks_[worker].push_back(ack);
      changed_.insert(worker);
    }
    if (flight == flights_.end()) continue;
    --flight->second.unstored_records;
    retire(flight->second);
  }
}

void TuningFloor::tick(int64_t now_ms, Actions& out) {
  for (const WorkerId& id : workers_.silent_since(now_ms - options_.worker_timeout_ms))
    worker_gone(now_ms, id, out);
  for (uint64_t lease : leases_.without_progress_since(now_ms - options_.lease_timeout_ms))
    take_back(now_ms, lease, true, out);
  workers_.tick(now_ms);
  empty_quarantine(now_ms, out);
  fail_unserved(now_ms, out);
  dispatcher_.hedge_late(now_ms, changed_);
  dispatch_due_ = true;  // somebody may have left the quarantine
}

// A target that has workers costs nothing here, however much waits for it; flights are looked at
// only where there is none.
void TuningFloor::fail_unserved(int64_t now_ms, Actions& out) {
  std::map<std::string, int64_t> served_ms;
  for (const auto& [name, target] : queue_.targets()) {
    const auto known = served_ms_.find(name);
    int64_t& last_ms = served_ms[name] = known == served_ms_.end() ? -1 : known->second;
    if (workers_.serves(target)) {
      last_ms = now_ms;
      continue;
    }
    for (const Digest& kernel : queue_.kernels_for(target))
      fail_if_unserved(now_ms, last_ms, flights_.at(kernel), out);
  }
  served_ms_ = std::move(served_ms);
}

void TuningFloor::fail_if_unserved(int64_t now_ms, int64_t served_ms, KernelFlight& flight,
                                   Actions& out) {
  flight.was_served = flight.was_served || flight.created_ms <= served_ms;
  if (flight.unserved_since_ms < 0 || flight.unserved_since_ms < served_ms)
    flight.unserved_since_ms = now_ms;
  const int64_t limit_ms =
      flight.was_served ? options_.worker_grace_ms : options_.max_waiting_for_worker_ms;
  if (now_ms - flight.unserved_since_ms < limit_ms || may_yet_come(now_ms, flight.target())) return;
  // Failed before settle() looks: not remembered, since the next worker may be on its way.
  flight.fail(Error{Code::kUnavailable,
                    fmt::format("no worker for {} since {} s; the workers there are have: {}",
                                describe(flight.target()),
                                (now_ms - flight.unserved_since_ms) / 1000, workers_.targets()),
                    0});
  settle(now_ms, flight, out);
}

// ---- Work ----

// After anything that a flight learnt: moves it on and sees to what its stage asks for.
void TuningFloor::settle(int64_t now_ms, KernelFlight& flight, Actions& out) {
  using Stage = KernelFlight::Stage;
  const bool failed_before = flight.stage() == Stage::kFailed;
  flight.advance();
  if (flight.stage() < Stage::kStoring) {
    queue(flight);
    return;
  }
  close_leases(flight);
  queue_.remove(flight.key());
  const auto scale_of = [this](const Target& device) { return workers_.reference_us(device); };
  if (auto store = flight.take_winner(scale_of)) out.push_back(*std::move(store));
  if (flight.stage() == Stage::kFailed && !failed_before)
    failures_.remember(now_ms, flight.key(), flight.error());
  if (flight.stage() != Stage::kStoring) settled_.push_back(flight.key());
}

void TuningFloor::queue(const KernelFlight& flight) {
  if (flight.stage() >= KernelFlight::Stage::kStoring || flight.waiting() == 0) return;
  queue_.add(flight.target(), flight.demand(), flight.key());
  queue_.set_waiting(flight.key(), flight.waiting());
  dispatch_due_ = true;
}

void TuningFloor::close(uint64_t lease_id) {
  const WorkerId worker = leases_.find(lease_id)->worker;
  leases_.close(lease_id);
  workers_.set_leases(worker, leases_.count(worker));
  changed_.insert(worker);
  dispatch_due_ = true;
}

void TuningFloor::close_leases(const KernelFlight& flight) {
  for (uint64_t id : leases_.of_kernel(flight.key())) close(id);
}

void TuningFloor::dispatch(int64_t now_ms, Actions& out) {
  if (std::exchange(dispatch_due_, false) && !queue_.empty())
    dispatcher_.lease_work(now_ms, changed_);
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

void TuningFloor::add_stats(int64_t now_ms, Stats& stats) const {
  stats.candidates_compiled += compiled_;
  stats.candidates_measured += measured_;
  stats.retries += retries_;
  stats.set_aside += set_aside_;
  stats.hedged += dispatcher_.hedged();
  stats.store_failures += store_failures_;
  stats.candidates_queued += queue_.waiting();
  for (const auto& [id, worker] : workers_.all()) {
    WorkerStats row;
    row.name = id;
    row.target = worker.target;
    row.toolkit = worker.toolkit;
    row.leases = worker.leases;
    row.compiled = worker.compiled;
    row.measured = worker.measured;
    row.state = worker.quarantined ? "quarantined" : worker.draining ? "draining" : "serving";
    row.reason = worker.health.reason();
    row.sentinel_us = worker.health.sentinel_us();
    row.idle_s = static_cast<double>(now_ms - worker.report_ms) / 1000;
    stats.workers.push_back(std::move(row));
  }
}

}  // namespace kiln
