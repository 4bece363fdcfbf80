// Scenario: what kind of cluster a seed builds. Constant after construction.
#pragma once

#include "tests/simulation/random.h"

namespace kiln::simulation {

struct Scenario {
  // Wild: small programs, several targets, every fault. Crowded: much work for one target, leases
  // of one candidate, so that it shows who is served when. Uneven: devices of one model and several
  // speeds. Drifting: wild, and calibration kernels that drift, perhaps from the start: who wins is
  // then not certain.
  enum class Kind { kWild, kCrowded, kUneven, kDrifting };
  Kind kind = Kind::kWild;
  // A wild one whose candidates are of two templates. Coordinators are upgraded between two
  // incarnations, and workers of other builds come and go until the faults end.
  bool mixed = false;
  bool asks_now = false;  // some max-autotune requests take tier 0

  Scenario(Random& random, uint64_t seed) {
    const double chosen = random.fraction();
    if (chosen < 0.12) kind = Kind::kCrowded;
    if (chosen > 0.82) kind = Kind::kDrifting;
    if (chosen > 0.92) kind = Kind::kUneven;
    // By numbers of its own, so that other clusters are as they were.
    mixed = kind == Kind::kWild && Random(seed ^ 0x74656d706c617465).chance(0.15);
    asks_now = kind != Kind::kCrowded && Random(seed ^ 0x7469657230).chance(0.3);
  }
  bool crowded() const { return kind == Kind::kCrowded; }
  bool drifting() const { return kind == Kind::kDrifting; }
  bool uneven() const { return kind == Kind::kUneven; }
};

inline constexpr double kSlowestDevice = 1.6;  // times the fastest, when uneven

}  // namespace kiln::simulation
