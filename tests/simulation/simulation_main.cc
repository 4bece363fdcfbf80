// simulation [--seed N] [--seeds N] [--trace]: runs one seed, or N from there on, until one breaks
// an invariant (exit 1).
#include <fmt/core.h>

#include <cstdlib>
#include <string_view>

#include "tests/simulation/cluster.h"

int main(int argc, char** argv) {
  uint64_t seed = 1, seeds = 1;
  bool trace = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--trace") {
      trace = true;
    } else if ((flag == "--seed" || flag == "--seeds") && i + 1 < argc) {
      (flag == "--seed" ? seed : seeds) = std::strtoull(argv[++i], nullptr, 10);
    } else {
      fmt::print(stderr, "usage: simulation [--seed N] [--seeds N] [--trace]\n");
      return 2;
    }
  }
  using kiln::simulation::Cluster;
  using kiln::simulation::Planted;
  for (uint64_t last = seed + seeds; seed < last; ++seed) {
    const auto outcome = Cluster(seed, Planted::kNone, trace).run();
    if (outcome.violation) {
      fmt::print("{}\nreplay: simulation --seed {} --trace\n", *outcome.violation, seed);
      return 1;
    }
    if (seeds == 1 || trace)
      fmt::print("seed {}: {} steps, {} answers, {} results accepted, {} coordinator lives\n", seed,
                 outcome.steps, outcome.answers, outcome.accepted, outcome.lives);
  }
  return 0;
}
