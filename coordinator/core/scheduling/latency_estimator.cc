#include "coordinator/core/scheduling/latency_estimator.h"

#include <algorithm>
#include <cmath>

namespace kiln {
namespace {

constexpr size_t kRemembered = 31;
constexpr size_t kEnough = 3;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void LatencyEstimator::saw(const Target& target, Family family, double ms, int count) {
  if (!(ms > 0) || !std::isfinite(ms) || count <= 0) return;
  Seen& seen = seen_[{target.backend, target.isa, family}];
  const double each_ms = ms / count;
  for (size_t i = 0; i < std::min<size_t>(kRemembered, static_cast<size_t>(count)); ++i) {
    if (seen.latest_ms.size() < kRemembered)
      seen.latest_ms.push_back(each_ms);
    else
      seen.latest_ms[seen.next] = each_ms;
    seen.next = (seen.next + 1) % kRemembered;
  }
  seen.median_ms = median(seen.latest_ms);
}

std::optional<double> LatencyEstimator::median_ms(const Target& target, Family family) const {
  const auto found = seen_.find(std::tuple(target.backend, std::string_view(target.isa), family));
  if (found == seen_.end() || found->second.latest_ms.size() < kEnough) return std::nullopt;
  return found->second.median_ms;
}

}  // namespace kiln
