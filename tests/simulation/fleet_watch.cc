#include "tests/simulation/fleet_watch.h"

#include <fmt/core.h>

namespace kiln::simulation {

void FleetWatch::incarnation_begins() {
  workers_.clear();
  plans_.clear();
  deaths_.clear();
}

void FleetWatch::saw(int64_t now_ms, const Event& event) {
  if (const auto* e = std::get_if<ReportReceived>(&event)) {
    const auto [entry, is_new] = workers_.try_emplace(e->worker);
    Known& worker = entry->second;
    if (!is_new && e->report.device_errors > worker.device_errors) worker.failed_ms = now_ms;
    worker.is_there = true;
    worker.device_errors = e->report.device_errors;
    worker.draining = e->report.draining;
    worker.seen_ms = now_ms;
  }
  if (const auto* e = std::get_if<WorkerGone>(&event))
    if (const auto found = workers_.find(e->worker); found != workers_.end()) left(found->second);
  if (const auto* e = std::get_if<DrainRequested>(&event))
    if (const auto found = workers_.find(e->worker); found != workers_.end())
      found->second.told_to_drain = found->second.is_there;
  if (std::holds_alternative<Tick>(event))
    for (auto& [id, worker] : workers_)
      if (worker.seen_ms <= now_ms - options_.worker_timeout_ms) left(worker);
  if (const auto* e = std::get_if<PlanFinished>(&event))
    for (const PlannedKernel& kernel : e->kernels) ++plans_[kernel.key];
}

// Its orders are forgotten with it; a report says whether it drains.
void FleetWatch::left(Known& worker) {
  worker.is_there = worker.told_to_drain = false;
}

std::optional<std::string> FleetWatch::ordered(const SendOrders& orders) const {
  const auto worker = workers_.find(orders.worker);
  if (worker == workers_.end() || !worker->second.told_to_drain || orders.orders.drain)
    return std::nullopt;
  return fmt::format("{} is not told to drain", orders.worker);
}

std::optional<std::string> FleetWatch::leased(int64_t now_ms, const WorkerId& id) const {
  const auto found = workers_.find(id);
  if (found == workers_.end() || !found->second.is_there)
    return fmt::format("{} is not there, and gets work", id);
  const Known& worker = found->second;
  if (worker.draining || worker.told_to_drain)
    return fmt::format("{} drains, and gets new work", id);
  if (worker.failed_ms >= 0 && now_ms - worker.failed_ms < options_.quarantine_ms)
    return fmt::format("the device of {} failed, and it gets new work", id);
  return std::nullopt;
}

std::optional<std::string> FleetWatch::recorded(const TuningRecord& record) {
  if (record.verdict != Verdict::kRunnerDied) return std::nullopt;
  const int deaths = ++deaths_[{record.kernel_key, record.schedule.to_string()}];
  if (deaths <= options_.max_runner_deaths * std::max(1, plans_[record.kernel_key]))
    return std::nullopt;
  return fmt::format("{} killed {} runners", record.schedule.to_string(), deaths);
}

}  // namespace kiln::simulation
