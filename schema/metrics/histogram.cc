#include "schema/metrics/histogram.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace kiln {

void Histogram::observe(double seconds) {
  const auto bucket = std::ranges::lower_bound(upper_s_, seconds);
  ++counts_[static_cast<size_t>(bucket - upper_s_.begin())];
  sum_s_ += seconds;
}

int64_t Histogram::count() const {
  return std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
}

std::span<const double> loop_bounds_s() {
  static constexpr std::array kBounds = {1e-5, 2.5e-5, 5e-5,   1e-4, 2.5e-4, 5e-4,   1e-3, 2.5e-3,
                                         5e-3, 1e-2,   2.5e-2, 5e-2, 1e-1,   2.5e-1, 5e-1, 1.0};
  return kBounds;
}

std::span<const double> work_bounds_s() {
  static constexpr std::array kBounds = {0.01, 0.03, 0.1,   0.3,   1.0,    3.0,
                                         10.0, 30.0, 100.0, 300.0, 1000.0, 3600.0};
  return kBounds;
}

}  // namespace kiln
