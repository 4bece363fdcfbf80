#include "compiler_core/tune/race.h"

#include <algorithm>

namespace kiln {
namespace {

constexpr size_t kMinFinalRounds = 10;

double median(std::span<const double> samples_us) {
  return Measurement{{samples_us.begin(), samples_us.end()}}.median_us();
}

}  // namespace

RaceStep next_step(const MeasurementPolicy& policy, double incumbent_us,
                   std::span<const double> samples_us) {
  const int taken = static_cast<int>(samples_us.size());
  if (taken < policy.screen_runs) return {RaceStep::Kind::kRunMore, policy.screen_runs - taken};
  const bool last = taken >= policy.race_runs;
  const double limit = last ? policy.race_drop : policy.screen_drop;
  if (incumbent_us > 0 && median(samples_us) > limit * incumbent_us)
    return {RaceStep::Kind::kDrop, 0};
  if (last) return {RaceStep::Kind::kFinalist, 0};
  const int half = std::max(policy.screen_runs, policy.race_runs / 2);
  if (incumbent_us <= 0 || taken > half)
    return {RaceStep::Kind::kRunMore, policy.race_runs - taken};
  if (taken < half) return {RaceStep::Kind::kRunMore, half - taken};
  // Half of the runs and none within reach of the incumbent: the others do not bring the median
  // there.
  if (*std::ranges::min_element(samples_us) > policy.race_drop * incumbent_us)
    return {RaceStep::Kind::kDrop, 0};
  return {RaceStep::Kind::kRunMore, policy.race_runs - taken};
}

std::vector<size_t> pick_finalists(const MeasurementPolicy& policy,
                                   std::span<const double> medians_us) {
  std::vector<size_t> order;
  for (size_t i = 0; i < medians_us.size(); ++i)
    if (medians_us[i] > 0) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return medians_us[a] < medians_us[b]; });
  std::erase_if(order, [&, best = order.empty() ? 0 : medians_us[order[0]]](size_t i) {
    return medians_us[i] > policy.race_drop * best;
  });
  if (order.size() > static_cast<size_t>(policy.finalists))
    order.resize(static_cast<size_t>(policy.finalists));
  return order;
}

bool finals_decided(const MeasurementPolicy& policy, std::span<const Measurement> finalists) {
  if (finalists.size() < 2) return true;
  size_t rounds = finalists[0].samples_us.size();
  for (const Measurement& finalist : finalists)
    rounds = std::min(rounds, finalist.samples_us.size());
  if (rounds >= static_cast<size_t>(policy.final_runs)) return true;
  if (rounds < kMinFinalRounds) return false;
  const size_t leader = rank(policy, finalists, kNoIncumbent)[0];
  const double tied_us = rounds >= static_cast<size_t>(policy.final_runs) / 2
                             ? finalists[leader].median_us() * (1 + policy.tie)
                             : 0;
  const auto is_decided = [&](const Measurement& rival) {
    return finalists[leader].quantile_us(0.75) < rival.quantile_us(0.25) ||
           rival.median_us() <= tied_us;
  };
  for (size_t i = 0; i < finalists.size(); ++i)
    if (i != leader && !is_decided(finalists[i])) return false;
  return true;
}

std::vector<size_t> rank(const MeasurementPolicy& policy, std::span<const Measurement> finalists,
                         size_t incumbent) {
  std::vector<double> medians;
  std::vector<size_t> order;
  for (const Measurement& finalist : finalists) {
    if (!finalist.samples_us.empty()) order.push_back(medians.size());
    medians.push_back(finalist.median_us());
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return medians[a] < medians[b]; });
  const auto kept = std::find(order.begin(), order.end(), incumbent);
  if (kept != order.end() && medians[incumbent] <= medians[order[0]] * (1 + policy.tie))
    std::rotate(order.begin(), kept, kept + 1);
  return order;
}

}  // namespace kiln
