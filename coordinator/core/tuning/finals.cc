#include "coordinator/core/tuning/finals.h"

#include <algorithm>

#include "compiler_core/tune/race.h"

namespace kiln {

void Finals::enter(std::vector<int> finalists) {
  finalists_ = std::move(finalists);
  runs_cut_short_ = 0;
  is_cut_short_ = false;
}

void Finals::withdraw(int finalist) {
  if (std::erase(finalists_, finalist) == 0) return;
  times_.erase(finalist);
  runs_cut_short_ = 0;
}

void Finals::begin() {
  times_.clear();
  is_cut_short_ = false;
}

void Finals::finished(int candidate, Measurement calibrated) {
  ended_.insert(candidate);
  times_[candidate] = std::move(calibrated);
}

void Finals::failed(int finalist) {
  failed_.insert(finalist);
  cut_short();
}

void Finals::cut_short() {
  runs_cut_short_ += !is_cut_short_;
  is_cut_short_ = true;
}

std::optional<int> Finals::winner(const MeasurementPolicy& policy, bool slowest_wins) const {
  if (needs_no_race()) return finalists_.front();
  if (runs_cut_short_ > max_retries_) {
    const auto ended = std::find_if(finalists_.begin(), finalists_.end(),
                                    [&](int i) { return ended_.contains(i); });
    return ended == finalists_.end() ? finalists_.front() : *ended;
  }
  if (is_cut_short_ || !all_finished()) return std::nullopt;
  std::vector<Measurement> times;
  for (int i : finalists_) times.push_back(times_.at(i));
  const auto order = rank(policy, times, 0);
  return finalists_[slowest_wins ? order.back() : order.front()];
}

std::optional<int> Finals::best_of(const std::function<bool(int)>& among) const {
  std::optional<int> best;
  for (const int i : finalists_) {
    if (!among(i)) continue;
    const Measurement* time = time_of(i);
    const Measurement* least = best ? time_of(*best) : nullptr;
    if (!best || (time != nullptr && least != nullptr && time->median_us() < least->median_us()))
      best = i;
  }
  return best;
}

// The only one left, unless it has only failed so far.
bool Finals::needs_no_race() const {
  if (finalists_.size() != 1) return false;
  const int only = finalists_.front();
  return !failed_.contains(only) || ended_.contains(only);
}

bool Finals::all_finished() const {
  return std::all_of(finalists_.begin(), finalists_.end(),
                     [&](int i) { return times_.contains(i); });
}

const Measurement* Finals::time_of(int candidate) const {
  const auto found = times_.find(candidate);
  return found == times_.end() ? nullptr : &found->second;
}

}  // namespace kiln
