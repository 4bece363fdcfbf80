// simulation [--seed N] [--seeds N] [--jobs N] [--mutant NAME] [--pool] [--trace]: runs one seed, or N from
// there on, side by side in N threads, until one breaks an invariant (exit 1). With a mutant of
// docs/simulation.md mutated, or, --mutant all, the first seed that shows each. --pool: of a pool.
#include <fmt/core.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <thread>

#include "tests/simulation/mutants.h"

namespace {

using kiln::simulation::Cast;
using kiln::simulation::Cluster;
using kiln::simulation::NamedMutant;

struct Flags {
  uint64_t seed = 1, seeds = 1, jobs = 1;
  std::string mutant;
  bool trace = false, pool = false;
};

bool parse(int argc, char** argv, Flags& flags) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--trace") {
      flags.trace = true;
      continue;
    }
    if (flag == "--pool") {
      flags.pool = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const char* value = argv[++i];
    if (flag == "--mutant")
      flags.mutant = value;
    else if (flag == "--seed")
      flags.seed = std::strtoull(value, nullptr, 10);
    else if (flag == "--seeds")
      flags.seeds = std::strtoull(value, nullptr, 10);
    else if (flag == "--jobs")
      flags.jobs = std::strtoull(value, nullptr, 10);
    else
      return false;
  }
  return flags.jobs >= 1;
}

// Until one breaks an invariant; the least of those that did.
int run(const Flags& flags, const NamedMutant& named) {
  std::atomic<uint64_t> next{flags.seed}, end{flags.seed + flags.seeds};
  std::mutex mu;
  std::string violation;  // guarded by mu
  uint64_t broken = 0;    // guarded by mu
  std::atomic<int64_t> steps{0}, accepted{0}, fenced{0};
  const auto work = [&] {
    for (uint64_t seed = next++; seed < end; seed = next++) {
      const auto outcome = Cluster(seed, named.mutant, flags.trace, named.cast).run();
      steps += outcome.steps;
      accepted += outcome.accepted;
      fenced += outcome.fenced;
      if (flags.seeds == 1)
        fmt::print(
            "seed {}: {} steps, {} answers, {} results accepted, {} hedged, {} set aside, {} "
            "coordinator lives\n",
            seed, outcome.steps, outcome.answers, outcome.accepted, outcome.stats.hedged,
            outcome.stats.set_aside, outcome.incarnations);
      if (!outcome.violation) continue;
      const std::lock_guard lock(mu);
      end = std::min(end.load(), seed);
      if (!violation.empty() && seed > broken) continue;
      violation = *outcome.violation;
      broken = seed;
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t i = 1; i < flags.jobs; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (!violation.empty()) {
    fmt::print("{}\nreplay: bin/simulation --seed {}{}{} --trace\n", violation, broken,
               flags.mutant.empty() ? "" : " --mutant " + flags.mutant,
               flags.pool ? " --pool" : "");
    return 1;
  }
  if (flags.seeds > 1)
    fmt::print(
        "{} seeds, {} steps: all invariants held; {} results accepted, {} came too late, from a "
        "lease of an earlier coordinator\n",
        flags.seeds, steps.load(), accepted.load(), fenced.load());
  return 0;
}

// For the table of docs/simulation.md.
int find_all_mutants(const Flags& flags) {
  int missed = 0;
  for (const auto& named : kiln::simulation::all_mutants()) {
    bool found = false;
    for (uint64_t seed = flags.seed; seed < flags.seed + flags.seeds && !found; ++seed) {
      const auto outcome = Cluster(seed, named.mutant, false, named.cast).run();
      found = outcome.violation.has_value();
      if (found) fmt::print("| {} | {} | {} |\n", named.name, seed, *outcome.violation);
    }
    if (!found) fmt::print("| {} | none of {} | |\n", named.name, flags.seeds);
    missed += !found;
  }
  return missed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  const bool good = parse(argc, argv, flags);
  const Cast cast = flags.pool ? Cast::kPool : Cast::kOne;
  const auto mutant = flags.mutant.empty() ? NamedMutant{"", {}, cast}
                                           : kiln::simulation::mutant_named(flags.mutant);
  if (good && flags.mutant == "all") return find_all_mutants(flags);
  if (!good || !mutant) {
    fmt::print(stderr,
               "usage: simulation [--seed N] [--seeds N] [--jobs N] [--mutant NAME|all] [--pool] "
               "[--trace]\n");
    return 2;
  }
  return run(flags, *mutant);
}
