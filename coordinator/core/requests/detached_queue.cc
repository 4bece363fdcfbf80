#include "coordinator/core/requests/detached_queue.h"

#include <algorithm>

namespace kiln {
namespace {

constexpr int64_t kAlwaysOfAUser = 2;   // programs, however few places there are
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

}  // namespace

Digest DetachedQueue::key_of(const DetachedTask& task) {
  return task_key(task.program(), task.audience);
}

bool DetachedQueue::full(const std::string& user) const {
  const int64_t left = options_.max_detached - std::ssize(entries_) - std::ssize(coming_);
  const auto theirs = of_user_.find(user);
  return left <= 0 ||
         (theirs != of_user_.end() && theirs->second >= std::max(left, kAlwaysOfAUser));
}

void DetachedQueue::expect(const Digest& key, const std::string& user) {
  if (coming_.emplace(key, user).second && !user.empty()) ++of_user_[user];
}

bool DetachedQueue::arrived(const Digest& key) {
  const auto found = coming_.find(key);
  if (found == coming_.end()) return false;
  leave(found->second);
  coming_.erase(found);
  return true;
}

void DetachedQueue::leave(const std::string& user) {
  const auto theirs = of_user_.find(user);
  if (theirs != of_user_.end() && --theirs->second == 0) of_user_.erase(theirs);
}

std::optional<int64_t> DetachedQueue::cost(const Digest& key, int64_t of_kernel,
                                           std::vector<Action>& out) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return std::nullopt;
  Entry& entry = found->second;
  const int64_t lost = std::max(entry.task.lost, entry.lost_before + of_kernel);
  if (lost == entry.task.lost) return std::nullopt;
  entry.task.lost = lost;
  out.push_back(StoreLost{entry.task});
  if (lost < options_.max_lost) return std::nullopt;
  return lost;
}

const DetachedTask* DetachedQueue::find(const Digest& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second.task;
}

void DetachedQueue::add(const DetachedTask& task, bool running) {
  const Digest key = key_of(task);
  forget_failure(key);
  const auto [entry, is_new] =
      entries_.try_emplace(key, Entry{task, kTryAgainMs, 0, running, {}, task.lost});
  if (!is_new) return;
  if (!task.owner.empty()) ++of_user_[task.owner];
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
  found->second.lost_before = found->second.task.lost;
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
  const DetachedTask task = take(key);
  out.push_back(EndDetached{key, task, outcome});
  if (!outcome) recall_failure(task, outcome.error(), out);
}

// REQUIRES: it is here.
DetachedTask DetachedQueue::take(const Digest& key) {
  const auto found = entries_.find(key);
  if (found->second.running)
    --running_;
  else
    std::erase(waiting_, key);  // a task that clients waited for was faster
  DetachedTask task = std::move(found->second.task);
  leave(task.owner);
  entries_.erase(found);
  return task;
}

std::vector<Digest> DetachedQueue::cancel(const Digest& program, std::vector<Action>& out) {
  std::vector<Digest> keys;
  for (const auto& [key, entry] : entries_)
    if (entry.task.program() == program) keys.push_back(key);
  for (const Digest& key : keys) out.push_back(EndDetached{key, take(key), {}, true});
  for (const Failed& failed : failures_)
    if (failed.task.program() == program) out.push_back(ForgetDetached{failed.task});
  std::erase_if(failures_, [&](const Failed& failed) { return failed.task.program() == program; });
  return keys;
}

void DetachedQueue::name(Stats& stats, const Viewer& viewer, const DetachedTask& task,
                         std::string_view state, const std::string& reason) {
  if (!task.audience.admits(viewer)) return;
  const bool is_whole = viewer.sees_all || viewer.user == task.owner;
  stats.detached.push_back({task.program(), task.graph, task.target, task.mode, std::string(state),
                            is_whole ? reason : reason.substr(0, reason.find('\n')), task.lost});
}

void DetachedQueue::add_stats(Stats& stats, const Viewer& viewer) const {
  stats.detached_running = running_;
  stats.detached_queued = std::ssize(waiting_);
  stats.detached_failed = std::ssize(failures_);
  const auto room = [&stats] { return stats.detached.size() < kNamedInStats; };
  for (auto failed = failures_.rbegin(); failed != failures_.rend() && room(); ++failed)
    name(stats, viewer, failed->task, "failed", failed->error.message);
  for (const auto& [key, entry] : entries_)
    if (entry.running && room()) name(stats, viewer, entry.task, "running", entry.trouble);
  for (const Digest& key : waiting_) {
    if (!room()) break;
    const Entry& entry = entries_.at(key);
    name(stats, viewer, entry.task, "queued", entry.trouble);
  }
}

}  // namespace kiln
