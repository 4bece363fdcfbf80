// Random: the only source of chance in a simulation. SplitMix64 (Steele, Lea, Flood 2014), so that
// a seed means the same everywhere.
#pragma once

#include <cstdint>

namespace kiln::simulation {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}

  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // From `low` to `high`, both included.
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
  }
  double fraction() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  bool chance(double probability) { return fraction() < probability; }

 private:
  uint64_t state_;
};

}  // namespace kiln::simulation
