// Time spent, for reports and limits, and what time it is. The caller reads the clock that time is
// spent by, so that whoever is given a clock (a simulated one in tests) uses the same functions.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

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
template <class Clock, class Duration>
double us_since(std::chrono::time_point<Clock, Duration> start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}
template <class Clock, class Duration>
double seconds_since(std::chrono::time_point<Clock, Duration> start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The time that is left, rounded up so that a wait for it does not end early; 0 at the least, and a
// billion at most.
inline int ms_until(std::chrono::steady_clock::time_point deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  const int64_t ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<int64_t>(ms, 0, 1'000'000'000));
}

// The time as it is stored and sent: since 1970, by the clock of this machine.
inline int64_t unix_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

}  // namespace kiln
