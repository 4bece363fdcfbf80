// TuningScheduler's side of work that no worker can do: it waits for one, and fails when that has
// taken too long; candidates that lack a template or a library are given up.
#include <fmt/core.h>

#include <algorithm>

#include "coordinator/core/scheduling/tuning_scheduler.h"

namespace kiln {

// A target that has workers with all templates costs nothing here, however much waits for it; tasks
// are looked at only where there is none.
void TuningScheduler::fail_unserved(int64_t now_ms, Actions& out) {
  const auto last_of = [](const std::map<std::string, int64_t>& times, const std::string& name) {
    const auto known = times.find(name);
    return known == times.end() ? -1 : known->second;
  };
  std::map<std::string, int64_t> served_ms, raced_ms;
  for (const auto& [name, target] : queue_.targets()) {
    int64_t& last_ms = served_ms[name] = last_of(served_ms_, name);
    int64_t& last_race_ms = raced_ms[name] = last_of(raced_ms_, name);
    if (workers_.serves(target)) {
      last_ms = now_ms;
      if (workers_.times_finals(target))
        last_race_ms = now_ms;
      else
        fail_unraced(now_ms, last_race_ms, target, out);
      settle_without_libraries(now_ms, target, out);
      if (workers_.has_all_templates(target)) continue;
      for (const Digest& kernel : queue_.kernels_for(target))
        leave_out_unmade(now_ms, tasks_.at(kernel), out);
      continue;
    }
    for (const Digest& kernel : queue_.kernels_for(target))
      fail_if_unserved(now_ms, last_ms, "", tasks_.at(kernel), out);
  }
  served_ms_ = std::move(served_ms);
  raced_ms_ = std::move(raced_ms);
}

// A final waits for a worker that may time it as all work waits for a worker.
void TuningScheduler::fail_unraced(int64_t now_ms, int64_t raced_ms, const Target& target,
                                   Actions& out) {
  for (const Digest& kernel : queue_.kernels_for(target)) {
    TuningTask& task = tasks_.at(kernel);
    if (task.stage() == TuningTask::Stage::kFinals)
      fail_if_unserved(now_ms, raced_ms,
                       " whose key may time finals (`kiln keys list` shows trust=screens)", task,
                       out);
  }
}

void TuningScheduler::fail_if_unserved(int64_t now_ms, int64_t served_ms, const char* lacking,
                                       TuningTask& task, Actions& out) {
  task.was_served = task.was_served || task.created_ms <= served_ms;
  if (task.unserved_since_ms < 0 || task.unserved_since_ms < served_ms)
    task.unserved_since_ms = now_ms;
  const int64_t limit_ms =
      task.was_served ? options_.worker_grace_ms : options_.max_waiting_for_worker_ms;
  if (now_ms - task.unserved_since_ms < limit_ms || may_yet_come(now_ms, task.target())) return;
  // Failed before settle() looks: not remembered, since the next worker may be on its way.
  task.fail(Error{
      Code::kUnavailable,
      fmt::format("{}{} since {} s; workers are connected for: {}", nobody_measures(task.target()),
                  lacking, (now_ms - task.unserved_since_ms) / 1000, workers_.targets()),
      0});
  settle(now_ms, task, out);
}

// Candidates that call a library which no worker for the target has; nothing is known of it while
// there is no worker.
bool TuningScheduler::withdraw_libraries(TuningTask& task) {
  bool changed = false;
  for (const auto& [name, library] : task.waiting_libraries()) {
    if (!workers_.serves(task.target()) || workers_.has_library(task.target(), {library, ""}))
      continue;
    task.withdraw(name);
    changed = true;
  }
  return changed;
}

// The last worker that had a library may have left, or never come: nothing else would say so.
void TuningScheduler::settle_without_libraries(int64_t now_ms, const Target& target, Actions& out) {
  if (target.backend != Backend::kCuda || workers_.has_any_library(target)) return;
  for (const Digest& kernel : queue_.kernels_for(target)) {
    TuningTask& task = tasks_.at(kernel);
    if (!task.waiting_libraries().empty()) settle(now_ms, task, out);
  }
}

// Workers of an earlier build may be about to be replaced: they get the time of workers that left.
void TuningScheduler::leave_out_unmade(int64_t now_ms, TuningTask& task, Actions& out) {
  bool changed = false;
  for (const std::string& name : task.waiting_templates()) {
    if (workers_.has_template(task.target(), name)) {
      task.unmade_since_ms.erase(name);
      continue;
    }
    const int64_t since_ms = task.unmade_since_ms.try_emplace(name, now_ms).first->second;
    if (now_ms - since_ms < options_.worker_grace_ms) continue;
    task.leave_out(name);
    changed = true;
  }
  if (changed) settle(now_ms, task, out);
}

}  // namespace kiln
