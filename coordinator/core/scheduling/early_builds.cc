// TuningScheduler's side of builds: who builds what; which kernels of `default` programs, which are
// answered as soon as they are built, are; whose binaries are handed out, and which were found wrong.
#include <algorithm>

#include "coordinator/core/scheduling/tuning_scheduler.h"

namespace kiln {
namespace {

constexpr size_t kMaxUnresolved = 4'096;
constexpr int64_t kShareAgainMs = 20'000;  // the shell may have dropped what was shared before

}  // namespace

bool TuningScheduler::has_builder(const TuningTask& task, int candidate) const {
  return workers_.has_builder(task.target(), task.candidates().template_of(candidate)) &&
         workers_.tries_built(task.target());
}

void TuningScheduler::hear_builds(int64_t now_ms, TuningTask& task) {
  for (const WorkerId& builder : task.take_bad_builders()) workers_.built_badly(now_ms, builder);
  if (!task.is_handed_out()) unresolved_.erase(task.key());
  if (task.take_refuted()) {
    ++withdrawn_;
    refuted_.push_back(task.key());
  }
  if (task.take_early_changed()) {
    shared_ms_.erase(task.key());
    built_.push_back(task.key());
  }
  count_unverified(task.key(), task.unverified_bytes());
}

void TuningScheduler::count_unverified(const Digest& kernel, int64_t bytes) {
  const auto found = unverified_.find(kernel);
  unverified_bytes_ += bytes - (found == unverified_.end() ? 0 : found->second);
  if (bytes > 0)
    unverified_[kernel] = bytes;
  else if (found != unverified_.end())
    unverified_.erase(found);
}

void TuningScheduler::erase(Digest kernel) {
  count_unverified(kernel, 0);
  shared_ms_.erase(kernel);
  if (tasks_.at(kernel).is_handed_out() && unresolved_.size() < kMaxUnresolved)
    unresolved_.insert(kernel);
  tasks_.erase(kernel);
}

void TuningScheduler::hand_out(int64_t now_ms, const Digest& kernel, Actions& out) {
  auto share = tasks_.at(kernel).hand_out();
  if (!share) return;
  const auto [shared, is_new] = shared_ms_.try_emplace(kernel, now_ms);
  if (!is_new && now_ms - shared->second < kShareAgainMs) return;
  shared->second = now_ms;
  out.push_back(*std::move(share));
}

// The first builder may have come, or the last have left: what waits is built apart from now on, or by
// who tries it.
void TuningScheduler::settle_with_other_builders(int64_t now_ms, Actions& out) {
  std::map<std::string, bool> apart;
  for (const auto* queue : {&builds_, &queue_})
    for (const auto& [name, target] : queue->targets()) {
      const auto before = apart_.find(name);
      const bool is_apart = apart[name] = workers_.builds_apart(target);
      const bool changed = before == apart_.end() || before->second != is_apart;
      if (!changed && workers_.has_complete_builder(target)) continue;
      for (const Digest& kernel : queue->kernels_for(target)) {
        TuningTask& task = tasks_.at(kernel);
        const bool waits = task.waits_for_build() || task.waits_for_verification();
        const bool is_stale = waits ? !has_builder(task, task.choice())
                                    : changed && task.is_built_apart() != is_apart;
        if (is_stale) settle(now_ms, task, out);
      }
    }
  apart_ = std::move(apart);
}

}  // namespace kiln
