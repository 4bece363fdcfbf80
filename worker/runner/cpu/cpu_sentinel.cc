#include "worker/runner/cpu/cpu_sentinel.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>

namespace kiln::runner {
namespace {

constexpr int kRuns = 9;
constexpr int kSteps = 1 << 16;

// Each step needs the one before, so that no core is better at it than its clock.
uint64_t chain(uint64_t x) {
  for (int i = 0; i < kSteps; ++i) x = x * 6364136223846793005u + 1442695040888963407u;
  return x;
}

}  // namespace

double cpu_sentinel_us() {
  using Clock = std::chrono::steady_clock;
  double least = INFINITY;
  volatile uint64_t seed = 1;  // so that nothing is computed before it is asked for
  for (int run = 0; run < kRuns; ++run) {
    const auto start = Clock::now();
    seed = chain(seed);
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    least = std::min(least, took.count());
  }
  return least;
}

}  // namespace kiln::runner
