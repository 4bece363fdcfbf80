#include "worker/jobs/launch_clock.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string>

namespace kiln {
namespace {

constexpr double kMostRatio = 4, kSlackUs = 20'000;

// A thread's second figure in /proc/.../schedstat: nanoseconds that it was ready and waited.
double waited_us(const std::string& schedstat) {
  std::ifstream file(schedstat);
  double ran_ns = 0, waited_ns = 0;
  return file >> ran_ns >> waited_ns ? waited_ns / 1e3 : 0;
}

double cpu_us(pid_t process) {
  clockid_t clock{};
  timespec used{};
  if (::clock_getcpuclockid(process, &clock) != 0 || ::clock_gettime(clock, &used) != 0) return 0;
  return static_cast<double>(used.tv_sec) * 1e6 + static_cast<double>(used.tv_nsec) / 1e3;
}

std::vector<pid_t> threads_of(pid_t process) {
  std::vector<pid_t> threads;
  std::error_code none;
  for (const auto& entry :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/task", process), none)) {
    const std::string name = entry.path().filename();
    pid_t thread = 0;
    std::from_chars(name.data(), name.data() + name.size(), thread);
    if (thread > 0) threads.push_back(thread);
  }
  return threads;
}

}  // namespace

bool contradicts(const LaunchCost& took, double said_us, int threads) {
  const double most_us = kMostRatio * said_us + kSlackUs;
  return took.wall_us - took.waited_us > most_us || took.cpu_us > std::max(threads, 1) * most_us;
}

LaunchClock::LaunchClock(pid_t process) : process_(process), threads_(threads_of(process)) {
  restart();
}

void LaunchClock::restart() {
  before_ = counted();
  start_ = std::chrono::steady_clock::now();
}

LaunchCost LaunchClock::counted() const {
  LaunchCost counted{0, cpu_us(process_), waited_us("/proc/thread-self/schedstat")};
  for (const pid_t thread : threads_)
    counted.waited_us += waited_us(fmt::format("/proc/{}/task/{}/schedstat", process_, thread));
  return counted;
}

LaunchCost LaunchClock::elapsed() const {
  const std::chrono::duration<double, std::micro> wall = std::chrono::steady_clock::now() - start_;
  const LaunchCost now = counted();
  return {wall.count(), now.cpu_us - before_.cpu_us, now.waited_us - before_.waited_us};
}

}  // namespace kiln
