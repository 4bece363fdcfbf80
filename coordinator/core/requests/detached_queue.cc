#include "coordinator/core/requests/detached_queue.h"

#include <algorithm>

namespace kiln {
namespace {

constexpr int kLooksATime = 64;         // at tasks that wait, for one that may run
constexpr int kMaxFailures = 1'000;     // remembered, here and by the store
constexpr size_t kNamedInStats = 100;   // tasks; the rest is only counted
constexpr int64_t kTryAgainMs = 5'000;  // twice as long after each attempt, up to
constexpr int64_t kTryAgainMostMs = 60'000;

// It says nothing about the program: a worker, the store or room was missing.
bool may_pass(const Error& error) {
  return error.code == Code::kUnavailable || error.code == Code::kOverloaded ||
         error.code == Code::kDeadlineExceeded;
}

DetachedStats stats_of(const Digest& key, const DetachedTask& task, std::string state,
                       std::string reason) {
  return {key, task.graph, task.target, task.mode, std::move(state), std::move(reason)};
}

}  // namespace

Digest DetachedQueue::key_of(const DetachedTask& task) {
  return program_key(task.graph, task.target, task.mode);
}

void DetachedQueue::add(const DetachedTask& task, bool running) {
  const Digest key = key_of(task);
  forget_failure(key);
  const auto [entry, is_new] = entries_.try_emplace(key, Entry{task, kTryAgainMs, 0, running, {}});
  if (!is_new) return;
  if (running)
    ++running_;
  else
    waiting_.push_back(key);
}

void DetachedQueue::recall_failure(const DetachedTask& task, const Error& why,
                                   std::vector<Action>& out) {
  const Digest key = key_of(task);
  forget_failure(key);
  failures_.push_back({key, task, why});
  if (std::ssize(failures_) <= kMaxFailures) return;
  out.push_back(ForgetDetached{failures_.front().task});
  failures_.pop_front();
}

void DetachedQueue::forget_failures(std::vector<Action>& out) {
  for (const Failed& failed : failures_) out.push_back(ForgetDetached{failed.task});
  failures_.clear();
}

void DetachedQueue::forget_failure(const Digest& key) {
  std::erase_if(failures_, [&](const Failed& failed) { return failed.key == key; });
}

bool DetachedQueue::keeps_running(const Digest& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return false;
  Entry& entry = found->second;
  if (entry.running) return running_ <= options_.max_detached_running;
  if (running_ >= options_.max_detached_running) return false;
  entry.running = true;
  entry.trouble.clear();
  ++running_;
  std::erase(waiting_, key);
  return true;
}

void DetachedQueue::postpone(const Digest& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end() || !found->second.running) return;
  found->second.running = false;
  --running_;
  waiting_.push_back(key);
}

const DetachedTask* DetachedQueue::start_next(int64_t now_ms,
                                              const std::function<bool(const Target&)>& can_run) {
  if (running_ >= options_.max_detached_running) return nullptr;
  for (int64_t i = std::min<int64_t>(kLooksATime, std::ssize(waiting_)); i > 0; --i) {
    const auto first = waiting_.begin();
    Entry& entry = entries_.at(*first);
    if (entry.not_before_ms <= now_ms && can_run(entry.task.target)) {
      waiting_.erase(first);
      entry.running = true;
      entry.trouble.clear();
      ++running_;
      return &entry.task;
    }
    waiting_.splice(waiting_.end(), waiting_, first);
  }
  return nullptr;
}

void DetachedQueue::ended(int64_t now_ms, const Digest& key, const Status& outcome,
                          std::vector<Action>& out) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  if (!outcome && may_pass(outcome.error())) {
    entry.not_before_ms = now_ms + entry.try_again_ms;
    entry.try_again_ms = std::min(2 * entry.try_again_ms, kTryAgainMostMs);
    entry.trouble = outcome.error().message;
    return postpone(key);
  }
  if (entry.running)
    --running_;
  else
    std::erase(waiting_, key);  // a task that clients waited for was faster
  const DetachedTask task = std::move(entry.task);
  entries_.erase(found);
  out.push_back(EndDetached{key, task, outcome});
  if (!outcome) recall_failure(task, outcome.error(), out);
}

void DetachedQueue::add_stats(Stats& stats) const {
  stats.detached_running = running_;
  stats.detached_queued = std::ssize(waiting_);
  stats.detached_failed = std::ssize(failures_);
  const auto room = [&stats] { return stats.detached.size() < kNamedInStats; };
  for (auto failed = failures_.rbegin(); failed != failures_.rend() && room(); ++failed)
    stats.detached.push_back(stats_of(failed->key, failed->task, "failed", failed->error.message));
  for (const auto& [key, entry] : entries_)
    if (entry.running && room())
      stats.detached.push_back(stats_of(key, entry.task, "running", entry.trouble));
  for (const Digest& key : waiting_) {
    if (!room()) break;
    const Entry& entry = entries_.at(key);
    stats.detached.push_back(stats_of(key, entry.task, "queued", entry.trouble));
  }
}

}  // namespace kiln
