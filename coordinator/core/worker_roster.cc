#include "coordinator/core/worker_roster.h"

#include <algorithm>
#include <set>

namespace kiln {
namespace {

constexpr int kMaxSlots = 64;  // a worker that asks for more is mistaken

}  // namespace

Worker& WorkerRoster::report(int64_t now_ms, const WorkerId& id, const WorkerReport& report) {
  Worker& worker = workers_[id];
  worker.target = report.target;
  worker.toolkit = report.toolkit;
  worker.slots = std::clamp(report.slots, 0, kMaxSlots);
  worker.draining = report.draining;
  worker.report_ms = now_ms;
  return worker;
}

Worker* WorkerRoster::find(const WorkerId& id) {
  const auto found = workers_.find(id);
  return found == workers_.end() ? nullptr : &found->second;
}

int WorkerRoster::slots_for(const Target& target) const {
  int slots = 0;
  for (const auto& [id, worker] : workers_)
    if (!worker.draining && worker.target.can_run(target)) slots += worker.slots;
  return slots;
}

bool WorkerRoster::serves(const Target& target, const WorkerId& except) const {
  return std::any_of(workers_.begin(), workers_.end(), [&](const auto& entry) {
    const auto& [id, worker] = entry;
    return id != except && !worker.draining && worker.target.can_run(target);
  });
}

std::vector<WorkerId> WorkerRoster::silent_since(int64_t time_ms) const {
  std::vector<WorkerId> silent;
  for (const auto& [id, worker] : workers_)
    if (worker.report_ms <= time_ms) silent.push_back(id);
  return silent;
}

std::string WorkerRoster::targets() const {
  std::set<std::string> names;
  for (const auto& [id, worker] : workers_) names.insert(worker.target.to_string());
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

}  // namespace kiln
