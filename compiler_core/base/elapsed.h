// Time spent, in milliseconds, for reports and limits. The caller reads the clock, so that whoever
// is given a clock (a simulated one in tests) uses the same functions.
#pragma once

#include <chrono>

namespace kiln {

template <class Clock, class Duration>
double ms_between(std::chrono::time_point<Clock, Duration> from,
                  std::chrono::time_point<Clock, Duration> to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

// Until now, by the clock that `start` was read from.
template <class Clock, class Duration>
double ms_since(std::chrono::time_point<Clock, Duration> start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace kiln
