// Histogram counts durations in buckets that are fixed when it is made. A value of one
// thread; copies are cheap enough to publish once a second.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kiln {

class Histogram {
 public:
  // `upper_s`: inclusive upper bounds in seconds, ascending, with static lifetime; a last bucket
  // counts what is above them.
  explicit Histogram(std::span<const double> upper_s)
      : upper_s_(upper_s), counts_(upper_s.size() + 1) {}

  void observe(double seconds);

  std::span<const double> upper_s() const { return upper_s_; }
  // The count of one bucket alone; bucket upper_s().size() has no bound.
  int64_t count_in(size_t bucket) const { return counts_[bucket]; }
  int64_t count() const;
  double sum_s() const { return sum_s_; }

 private:
  std::span<const double> upper_s_;
  std::vector<int64_t> counts_;
  double sum_s_ = 0;
};

// Bounds for what the loop does (10 us to 1 s) and for what workers do (10 ms to an hour).
std::span<const double> loop_bounds_s();
std::span<const double> work_bounds_s();

}  // namespace kiln
