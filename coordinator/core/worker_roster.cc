#include "coordinator/core/worker_roster.h"

#include <algorithm>
#include <set>

namespace kiln {
namespace {

constexpr int kMaxSlots = 64;  // a worker that asks for more is mistaken

}  // namespace

std::string describe(const Target& target) {
  return target.to_string() + (target.toolkit.empty() ? "" : " (" + target.toolkit + ")");
}

Worker& WorkerRoster::report(int64_t now_ms, const WorkerId& id, const WorkerReport& report) {
  Worker& worker = workers_[id];
  worker.target = report.target;
  worker.toolkit = report.toolkit;
  worker.slots = std::clamp(report.slots, 0, kMaxSlots);
  worker.draining = report.draining || worker.drain_ordered;
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

int WorkerRoster::count_for(const Target& target) const {
  return static_cast<int>(std::count_if(workers_.begin(), workers_.end(), [&](const auto& entry) {
    return !entry.second.draining && entry.second.target.can_run(target);
  }));
}

Target WorkerRoster::resolve(const Target& target) const {
  const bool named = target.device_model.empty() && target.units == 0;
  if (target.backend != Backend::kCuda || target.isa.empty() || !named) return target;
  const Target* found = nullptr;
  for (const auto& [id, worker] : workers_) {
    if (worker.draining || !worker.target.can_run(target)) continue;
    const bool better =
        found == nullptr || (found->isa != target.isa && worker.target.isa == target.isa);
    if (better) found = &worker.target;
  }
  if (found == nullptr) return target;
  Target resolved = *found;
  resolved.isa = target.isa;
  return resolved;
}

std::string WorkerRoster::targets() const {
  std::set<std::string> names;
  for (const auto& [id, worker] : workers_) names.insert(describe(worker.target));
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

}  // namespace kiln
