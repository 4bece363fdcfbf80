// TuningTask's candidates that are much like one before them in the list: its followers. Those that
// lead are tried first, and what they show decides about the others.
//
//   held --all that lead are settled; one of its leaders came near the best--> queued, like any other
//     |  |                            `none did--> passed over --nothing else is right--> queued
//     |  `compilers have nothing else to do (call_followers)--> queued
//     `its leaders are wrong or spill, or nothing came out right--> queued
//
// A candidate that is passed over counts as if it had not been listed. A task knows the decisions of
// its schedules and nothing else, so it compares those. Measured: tests/gpu/LOG.md, "Tuning".
#include <algorithm>
#include <limits>
#include <utility>

#include "coordinator/core/mutation.h"
#include "coordinator/core/tuning/tuning_task.h"

namespace kiln {
namespace {

constexpr double kAlike = 2.5;      // ScheduleList::distance of a candidate and its leader, at most
constexpr double kNear = 1.07;      // times the best of those that lead
constexpr int kMostCompared = 512;  // candidates of a task whose list is searched for followers

}  // namespace

bool TuningTask::are_alike(int a, int b) const {
  return candidates_.distance(a, b) <= kAlike;
}

void TuningTask::find_followers() {
  if (mode_ != Mode::kMaxAutotune || candidates_.size() > kMostCompared) return;
  std::vector<int> leaders;
  for (int i = 0; i < candidates_.size(); ++i) {
    const CandidateState& c = candidates_[i];
    if (c.is_library || c.is_offered || is_reserve(i)) continue;
    if (std::ranges::any_of(leaders, [&](int leader) { return are_alike(i, leader); }))
      followers_.insert(i);
    else
      leaders.push_back(i);
  }
}

void TuningTask::judge_followers() {
  if (followers_.empty()) return;
  std::erase_if(followers_, [this](int i) { return candidates_[i].settled(); });
  if (unsettled() - std::ssize(followers_) > std::ssize(spilling_)) return;
  followers_judged_ = true;
  const double best_us = candidates_.best_us();
  const std::set<int> held = std::exchange(followers_, {});
  for (const int i : held) {
    double leader_us = std::numeric_limits<double>::infinity();
    for (int j = 0; j < candidates_.size(); ++j) {
      const CandidateState& c = candidates_[j];
      if (!held.contains(j) && c.screened_us > 0 && !c.rejected && are_alike(i, j))
        leader_us = std::min(leader_us, c.screened_us);
    }
    const bool is_behind = leader_us > kNear * best_us && std::isfinite(leader_us);
    if (best_us > 0 && is_behind) {
      candidates_.withdraw(i);
      passed_over_.push_back(i);
    } else {
      candidates_.want(i);
    }
  }
}

bool TuningTask::call_followers() {
  bool called = false;
  for (const int i : std::exchange(followers_, {})) {
    if (candidates_[i].settled()) continue;
    candidates_.want(i);
    called = true;
  }
  return called;
}

}  // namespace kiln
