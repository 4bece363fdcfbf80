// pool_soak: trouble for a pool of coordinators, as many rounds of each kind as one likes.
//
//   pool_soak --rounds 50 --kind kill-at-statement --seed 7 --json
//   pool_soak --rounds 50                                        of every kind, in turn
//   pool_soak --crowd 1000          so many clients ask at once for one program that nobody has
//
// Exit codes: 0 all was as promised; 1 not, and stderr says what; 2 usage; 77 there is no PostgreSQL, or no network of
// its own for what takes one.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <nlohmann/json.hpp>

#include "tests/system/pool/pool_crowd.h"
#include "tests/system/pool/pool_drill.h"

namespace {

using namespace kiln;           // NOLINT: a program
using namespace kiln::testing;  // NOLINT

std::vector<PoolTrouble::Kind> kinds_of(const std::string& chosen, bool has_filter) {
  std::vector<PoolTrouble::Kind> kinds;
  for (int n = 1; n < PoolTrouble::kKinds; ++n)
    if (const auto kind = static_cast<PoolTrouble::Kind>(n);
        chosen.empty() ? has_filter || !takes_filter(kind) : name(kind) == chosen)
      kinds.push_back(kind);
  return kinds;
}

int crowd(Pool& pool, int clients) {
  const CrowdTally tally = ask_at_once(pool, clients, 1'000);
  const nlohmann::json report = {{"clients", clients},
                                 {"answered", tally.answered},
                                 {"tuned", tally.tuned},
                                 {"joined", tally.joined},
                                 {"hits", tally.hits},
                                 {"longest_s", tally.longest_s},
                                 {"builds", tally.builds.builds},
                                 {"candidates", tally.builds.candidates},
                                 {"hedged", tally.hedged},
                                 {"confirmed", tally.confirmed},
                                 {"error", tally.error}};
  fmt::print("{}\n", report.dump());
  return tally.answered == clients && tally.tuned == 1 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 50, clients = 0;
  uint64_t seed = 1;
  std::string chosen;
  bool as_json = false;
  CLI::App app("A pool of coordinators at fault, checked after every round.", "pool_soak");
  app.add_option("--rounds", rounds, "of each kind")->capture_default_str();
  app.add_option("--kind", chosen,
                 "kill-at-statement, kill-at-take, kill-at-put, stop, "
                 "cut-postgres, cut-clients, cut-s3, fail-over, s3, lose-postgres, lose-clients or "
                 "lose-s3; default: all, those that lose packets as root only");
  app.add_option("--crowd", clients, "instead: clients that ask at once for one new program");
  app.add_option("--seed", seed, "of the troubles")->capture_default_str();
  app.add_flag("--json", as_json, "figures as one JSON object on stdout");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const Status network = PacketFilter::enter_own_network();
  const std::vector<PoolTrouble::Kind> kinds = kinds_of(chosen, network.has_value());
  if (kinds.empty()) return fmt::print(stderr, "pool_soak: no such kind\n"), 2;

  if (!network && takes_filter(kinds.front()))
    return fmt::print(stderr, "pool_soak: {}\n", network.error().message), 77;
  const TempDir dir = TempDir::create("kiln-pool").value();
  const auto pool =
      Pool::start({.root = dir.path(), .has_standby = true, .has_filter = network.has_value()});
  if (!pool) {
    fmt::print(stderr, "pool_soak: {}\n", pool.error().message);
    return pool.error().code == Code::kUnsupported ? 77 : 1;
  }
  if (clients > 0) return crowd(**pool, clients);
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed_s = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  PoolDrill drill(**pool, seed);
  std::mt19937_64 random(seed);
  std::vector<std::string> complaints;
  const auto take = [&](const std::vector<std::string>& more, const std::string& about) {
    for (const std::string& complaint : more) {
      fmt::print(stderr, "pool_soak: {}: {}\n", about, complaint);
      complaints.push_back(about + ": " + complaint);
    }
  };
  for (int round = 0; round < rounds; ++round)
    for (const PoolTrouble::Kind kind : kinds) {
      const PoolTrouble trouble = draw(kind, round, random);
      take(drill.round(trouble), fmt::format("round {}, {}", round, describe(trouble)));
      if (!as_json) fmt::print(stderr, "{:.0f} s: {}\n", elapsed_s(), describe(trouble));
    }
  take(drill.after_kill(), "after kill -9 of all");
  const PoolDrill::Tally& tally = drill.tally();
  const nlohmann::json report = {{"minutes", elapsed_s() / 60},
                                 {"seed", seed},
                                 {"kind", chosen},
                                 {"rounds", tally.rounds},
                                 {"struck", tally.struck},
                                 {"takeovers", tally.takeovers},
                                 {"answers", tally.answers},
                                 {"hits", tally.hits},
                                 {"errors", tally.errors},
                                 {"memory_only", tally.memory_only},
                                 {"longest_s", tally.longest_s},
                                 {"builds", tally.builds},
                                 {"candidates", tally.candidates},
                                 {"restarts", (*pool)->restarts()},
                                 {"lost", tally.lost},
                                 {"wrong", tally.wrong},
                                 {"unanswered", tally.unanswered},
                                 {"complaints", complaints}};
  fmt::print("{}\n", report.dump(as_json ? -1 : 2));
  return complaints.empty() ? 0 : 1;
}
