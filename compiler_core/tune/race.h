// Racing: which candidate is worth another run, which reach the finals, which one wins. Pure
// decisions over samples already taken: no clock, no device, no state. Times are in microseconds.
//
//   worker:       next_step until it drops the candidate or calls it a finalist;
//   coordinator:  pick_finalists over the medians of the survivors;
//   worker:       rounds of one run of each finalist until finals_decided;
//   coordinator:  rank over the interleaved samples; the first is the winner.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "compiler_core/tune/measurement.h"

namespace kiln {

struct RaceStep {
  enum class Kind { kRunMore, kDrop, kFinalist };
  Kind kind = Kind::kRunMore;
  int runs = 0;  // kRunMore: this many, then ask again
  bool operator==(const RaceStep&) const = default;
};

// For a verified candidate with `samples_us` so far. `incumbent_us` is the best median known
// elsewhere, 0 when there is none (then nothing is dropped). It may improve between calls. A
// candidate is dropped whose median exceeds screen_drop times the incumbent after screen_runs, or
// race_drop times after race_runs, or none of whose first half of race_runs is below the latter.
RaceStep next_step(const MeasurementPolicy& policy, double incumbent_us,
                   std::span<const double> samples_us);

// The `policy.finalists` lowest medians within race_drop of the best, fastest first; equal ones in
// the order given. Indices into `medians_us`; entries <= 0 were not measured and never chosen.
std::vector<size_t> pick_finalists(const MeasurementPolicy& policy,
                                   std::span<const double> medians_us);

// True when every finalist has `final_runs` samples, or, from ten rounds on, when the leader's
// upper quartile lies below every rival's lower quartile: more runs would not change the order.
// From half of `final_runs` on, rivals whose medians tie with the leader's need not be told apart.
bool finals_decided(const MeasurementPolicy& policy, std::span<const Measurement> finalists);

inline constexpr size_t kNoIncumbent = static_cast<size_t>(-1);

// Finalists by median, fastest first; those without samples are left out. `incumbent` (an index, or
// kNoIncumbent) moves to the front when the fastest beats it by less than `policy.tie`.
std::vector<size_t> rank(const MeasurementPolicy& policy, std::span<const Measurement> finalists,
                         size_t incumbent);

}  // namespace kiln
