// TuningTask's candidates that are much like one before them in the list: variants of it, which is
// their original. Originals are tried first, and what they show decides about the variants.
//
//   held --all originals are settled; one of its own came near the best--> queued, like any other
//     |  |                            `none did--> passed over --nothing else is right--> queued
//     |  `compilers have nothing else to do (queue_variants)--> queued
//     `its originals are wrong or spill, or nothing came out right--> queued
//
// A candidate that is passed over counts as if it had not been listed. A task knows the decisions of
// its schedules and nothing else, so it compares those. Measured: tests/gpu/LOG.md, "Tuning".
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "coordinator/core/mutation.h"
#include "coordinator/core/tuning/tuning_task.h"

namespace kiln {
namespace {

constexpr double kAlike = 2.5;  // ScheduleList::distance of a candidate and its original, at most
constexpr double kNear = 1.07;  // times the best original
constexpr int kMostCompared = 512;  // candidates of a task whose list is searched for variants

}  // namespace

bool TuningTask::are_alike(int a, int b) const {
  return candidates_.distance(a, b) <= kAlike;
}

void TuningTask::find_variants() {
  if (mode_ != Mode::kMaxAutotune || candidates_.size() > kMostCompared) return;
  std::vector<int> originals;
  for (int i = 0; i < candidates_.size(); ++i) {
    const CandidateState& c = candidates_[i];
    if (c.is_library || c.is_offered || is_reserve(i)) continue;
    if (std::ranges::any_of(originals, [&](int original) { return are_alike(i, original); }))
      variants_.insert(i);
    else
      originals.push_back(i);
  }
}

void TuningTask::judge_variants() {
  if (variants_.empty()) return;
  std::erase_if(variants_, [this](int i) { return candidates_[i].settled(); });
  if (unsettled() - std::ssize(variants_) > std::ssize(spilling_)) return;
  variants_judged_ = true;
  const double best_us = candidates_.best_us();
  const std::set<int> held = std::exchange(variants_, {});
  for (const int i : held) {
    double original_us = std::numeric_limits<double>::infinity();
    for (int j = 0; j < candidates_.size(); ++j) {
      const CandidateState& c = candidates_[j];
      if (!held.contains(j) && c.screened_us > 0 && !c.rejected && are_alike(i, j))
        original_us = std::min(original_us, c.screened_us);
    }
    const bool is_behind = original_us > kNear * best_us && std::isfinite(original_us);
    if (best_us > 0 && is_behind) {
      candidates_.withdraw(i);
      passed_over_.push_back(i);
    } else {
      candidates_.want(i);
    }
  }
}

bool TuningTask::queue_variants() {
  bool called = false;
  for (const int i : std::exchange(variants_, {})) {
    if (candidates_[i].settled()) continue;
    candidates_.want(i);
    called = true;
  }
  return called;
}

}  // namespace kiln
