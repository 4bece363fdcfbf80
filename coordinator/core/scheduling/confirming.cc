// TuningScheduler's side of confirmation: who may be asked about a candidate, what becomes of a
// question that nobody can answer, and of workers that others contradicted.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "coordinator/core/mutation.h"
#include "coordinator/core/scheduling/tuning_scheduler.h"

namespace kiln {
namespace {

constexpr size_t kMaxBuilders = 4'096;  // whose winners are counted

}  // namespace

bool TuningScheduler::has_voter(const TuningTask& task, int candidate, Among among) const {
  return std::ranges::any_of(workers_.all(), [&](const auto& entry) {
    return entry.second.takes_work() && entry.second.target.can_run(task.target()) &&
           dispatcher_.may_vote(entry.first, entry.second, task, candidate, among);
  });
}

// By a number that no worker knows, and at the latest when so many of its winners were not. A sample
// that nobody could be asked about is still owed: a builder gains nothing by being alone for a while.
bool TuningScheduler::samples(const Digest& kernel, const WorkerId& builder, bool has_voter) {
  const int one_in = options_.sample_one_in;
  if (one_in <= 0) return false;
  if (since_sampled_.size() >= kMaxBuilders) since_sampled_.clear();
  const Digest drawn =
      Hasher("kiln.sample.v1").add(kernel).add(static_cast<int64_t>(options_.sample_seed)).finish();
  uint64_t number = 0;
  std::memcpy(&number, drawn.bytes.data(), sizeof number);
  int& since = since_sampled_[builder];
  const bool is_drawn = number % static_cast<uint64_t>(one_in) == 0;
  since = is_drawn ? one_in : std::min(since + 1, one_in);
  if (since < one_in) return false;
  if (has_voter) since = 0;
  return has_voter;
}

// Questions whose last possible voter left are withdrawn; where the answer is required they wait for
// another one, as work waits for a worker.
void TuningScheduler::look_for_voters(int64_t now_ms, Actions& out) {
  for (const Digest& key : std::set<Digest>(confirming_)) {
    const auto found = tasks_.find(key);
    if (found == tasks_.end() || !found->second.is_confirming()) {
      confirming_.erase(key);
      continue;
    }
    TuningTask& task = found->second;
    if (!task.is_asked_of_nobody() || has_voter(task, task.asked(), task.asked_among())) {
      task.unconfirmed_since_ms = -1;
      continue;
    }
    if (task.unconfirmed_since_ms < 0) task.unconfirmed_since_ms = now_ms;
    if (task.must_be_confirmed() && now_ms - task.unconfirmed_since_ms < options_.worker_grace_ms)
      continue;
    if (task.must_be_confirmed())
      task.fail(Error{Code::kUnavailable,
                      fmt::format("no worker of another key could confirm a kernel for {} (the "
                                  "coordinator runs with --confirm 2, or the key of whoever built "
                                  "it may only screen): start one, with a key of its own and the "
                                  "same compiler",
                                  describe(task.target())),
                      0});
    else
      task.withdraw_question();
    settle(now_ms, task, out);
  }
}

void TuningScheduler::hear_disputes(TuningTask& task, Actions& out) {
  if (task.is_confirming()) confirming_.insert(task.key());
  for (const std::string& why : task.take_disputes()) out.push_back(LogDisputed{task.key(), why});
  for (Distrust& liar : task.take_distrusted()) {
    workers_.distrust(liar.worker);
    changed_.insert(liar.worker);
    out.push_back(std::move(liar));
  }
}

bool TuningScheduler::has_heard(const Digest& kernel, const TakingBackBegan& event) const {
  const TuningTask* task = find(kernel);
  return task != nullptr && std::ranges::any_of(task->heard(), [&](const Reporter& by) {
           return event.workers.contains(by.worker) || event.owners.contains(by.key);
         });
}

void TuningScheduler::take_back(const TakingBackBegan& event) {
  failures_.clear();
  std::vector<Digest> tainted;
  for (const auto& [key, task] : tasks_)
    if (event.everything || event.kernels.contains(key) || has_heard(key, event))
      tainted.push_back(key);
  for (const Digest& key : tainted) {
    TuningTask& task = tasks_.at(key);
    if (!task.programs().empty()) continue;  // of a program that is being stored, and is doomed
    close_leases(task);
    unqueue(key);
    confirming_.erase(key);
    erase(key);
  }
}

}  // namespace kiln
