// soak: trouble at random, from a seed, against a live service under load, for as long as one
// likes.
//
//   soak --minutes 30 --seed 7 --keys --json                      as a cluster runs it
//   soak --rounds 1 --fault kill:after:coordinator.blob.sync      one round of the tests again
//
// Every other sixth of the time coordinator and workers are not killed, only all else goes wrong:
// only what lives a while shows whether it grows. Exit codes: 0 all was as promised; 1 not, and
// stderr says what; 2 usage.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/system/faults/drill.h"
#include "tests/system/faults/library_load.h"
#include "tests/system/faults/processes.h"
#include "tests/system/faults/vital_signs.h"

namespace {

using namespace kiln;           // NOLINT: a program
using namespace kiln::testing;  // NOLINT

struct Flags {
  double minutes = 0;
  int rounds = 0;
  uint64_t seed = 1;
  int workers = 2, threads = 2, programs = 0;
  std::string cache_size, memory = "4MiB";
  bool json = false, keys = false;
  // One trouble, named in full.
  std::vector<std::string> faults;
  std::string killed, stopped;
  int cut = 0;
  Trouble trouble;
};

std::optional<int> parse(int argc, char** argv, Flags& flags) {
  CLI::App app("Kiln's service under load and at fault, checked after every round.", "soak");
  app.add_option("--minutes", flags.minutes, "how long");
  app.add_option("--rounds", flags.rounds, "or how many rounds");
  app.add_option("--seed", flags.seed, "of the troubles")->capture_default_str();
  app.add_option("--workers", flags.workers, "")->capture_default_str()->check(CLI::Range(1, 16));
  app.add_option("--threads", flags.threads, "of this program that ask all the time")
      ->capture_default_str();
  app.add_option("--programs", flags.programs,
                 "there are; then old ones are asked for again; 0: a new one each round")
      ->capture_default_str();
  app.add_option("--memory", flags.memory,
                 "of the coordinator, so little that it fills in minutes and must then be flat")
      ->capture_default_str();
  app.add_option("--cache-size", flags.cache_size,
                 "of the coordinator, e.g. 200KB: programs are evicted all the time, and a miss of "
                 "one that was answered is no loss");
  app.add_flag("--json", flags.json, "figures as one JSON object on stdout");
  app.add_flag("--keys", flags.keys, "CURVE, a key for each role, and HTTP ports");
  app.add_option("--fault", flags.faults,
                 "always this at a point, and further ones at points of other programs: "
                 "ACTION:before|after:POINT, or with :ERRNO:SKIP:TIMES:DELAY_MS; kill, stop, fail, "
                 "short, torn or delay (docs/faults.md)");
  app.add_option("--kill", flags.killed, "always: client, worker, runner, coordinator or compiler");
  app.add_option("--stop", flags.stopped, "the same");
  app.add_option("--cut", flags.cut, "1 refuse, 2 bytes, 3 halves, 4 delay, 5 and 6 deaf");
  app.add_flag("--drop", flags.trouble.drops, "connections are dropped");
  app.add_flag("--rot", flags.trouble.rots, "a bit of a stored blob flips");
  app.add_option("--after-ms", flags.trouble.after_ms, "when");
  app.add_option("--for-ms", flags.trouble.for_ms, "for how long");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (flags.minutes <= 0 && flags.rounds <= 0) flags.rounds = 20;
  return std::nullopt;
}

Victim victim(const std::string& text) {
  for (int n = 1; n <= 5; ++n)
    if (name(static_cast<Victim>(n)) == text) return static_cast<Victim>(n);
  return Victim::kNobody;
}

// The trouble that the flags name, or none.
std::optional<Trouble> named(const Flags& flags) {
  Trouble trouble = flags.trouble;
  for (const std::string& text : flags.faults) {
    const Result<Fault> fault = parse_fault(text);
    if (!fault) {
      fmt::print(stderr, "soak: {}\n", fault.error().message);
      std::exit(2);
    }
    trouble.faults.push_back(*fault);
  }
  trouble.killed = victim(flags.killed);
  trouble.stopped = victim(flags.stopped);
  trouble.cut = static_cast<TcpProxy::Mode>(flags.cut);
  return trouble.is_nothing() ? std::nullopt : std::optional(trouble);
}

bool ends_a_service(const Trouble& trouble) {
  if (trouble.killed == Victim::kCoordinator || trouble.killed == Victim::kWorker) return true;
  if (trouble.hurts_the_store() || trouble.loses_blobs()) return true;  // judged after a kill
  return std::ranges::any_of(trouble.faults, [&](const Fault& fault) {
    const std::string_view program = point_of(fault).program;
    if (program != "kiln-coordinator" && program != "kiln-worker") return false;
    return fault.action == FaultAction::kKill || fault.action == FaultAction::kTorn ||
           trouble.restarts(program);
  });
}

// "kill", "stop", ...: for the count of what was done.
std::string kind(const Trouble& trouble) {
  if (!trouble.faults.empty())
    return fmt::format("{} at a point", name(trouble.faults.front().action));
  if (trouble.killed != Victim::kNobody) return fmt::format("kill {}", name(trouble.killed));
  if (trouble.stopped != Victim::kNobody) return fmt::format("stop {}", name(trouble.stopped));
  if (trouble.rots) return "rot";
  if (trouble.drops) return "wire dropped";
  return fmt::format("wire {}", TcpProxy::name(trouble.cut));
}

// What is seen of every process that stays: the coordinator, the workers, their runners, and the
// clients in this one.
class Signs {
 public:
  explicit Signs(LiveService& service) : service_(service), workers_(service.workers()) {}

  void sample(double now_s) {
    coordinator_.sample(now_s, service_.coordinator().pid());
    clients_.sample(now_s, ::getpid());
    for (size_t n = 0; n < workers_.size(); ++n) {
      workers_[n].sample(now_s, service_.worker(n).pid());
      const auto runners = descendants(service_.worker(n).pid(), "kiln-runner");
      if (n == 0 && !runners.empty()) runner_.sample(now_s, runners.front());
    }
    const auto stats = service_.run_client({"stats", "--json"}, 5).json();
    const int64_t evicted = stats.is_object() ? stats.value("evicted", int64_t{0}) : 0;
    evicted_ += evicted >= last_evicted_ ? evicted - last_evicted_ : evicted;  // since its start
    last_evicted_ = evicted;
  }
  int64_t evicted() const { return evicted_; }
  nlohmann::json report() const {
    nlohmann::json report = {{"coordinator", coordinator_.report()},
                             {"runner", runner_.report()},
                             {"library_clients", clients_.report()}};
    for (const VitalSigns& worker : workers_) report["workers"].push_back(worker.report());
    return report;
  }

 private:
  LiveService& service_;
  VitalSigns coordinator_, runner_, clients_;
  std::vector<VitalSigns> workers_;
  int64_t evicted_ = 0, last_evicted_ = 0;
};

int soak(const Flags& flags) {
  using Clock = std::chrono::steady_clock;
  adopt_orphans();
  const TempDir dir = TempDir::create("kiln-soak").value();
  FaultControl faults(dir.path() / "board");
  LiveService::Options options;
  options.root = dir.path();
  options.workers = flags.workers;
  options.proxied = true;
  options.keyed = flags.keys;
  options.coordinator_flags = {"--lease-timeout-ms", "1500",      "--worker-timeout-ms", "2500",
                               "--memory",           flags.memory};
  if (!flags.cache_size.empty())
    options.coordinator_flags.insert(options.coordinator_flags.end(),
                                     {"--cache-size", flags.cache_size});
  LiveService service(options, faults);
  Drill drill(service, faults, flags.seed);
  drill.limit_programs(flags.programs);
  if (!flags.cache_size.empty()) drill.allow_eviction();
  std::vector<std::string> complaints;
  const auto take = [&](const std::vector<std::string>& more, const std::string& about) {
    for (const std::string& complaint : more) {
      fmt::print(stderr, "soak: {}: {}\n", about, complaint);
      complaints.push_back(about + ": " + complaint);
    }
  };
  if (!service.await()) take({"the service does not start"}, "start");
  take(drill.round({}), "nothing goes wrong");

  ClientOptions client;
  client.coordinator = service.endpoint();
  client.key_file = service.submit_key();
  LibraryLoad load(client, programs_of(service), flags.threads, 100'000, 8);
  const bool evicts = !flags.cache_size.empty();
  if (evicts) load.excuse();
  const std::optional<Trouble> always = named(flags);
  std::mt19937_64 random(flags.seed);
  std::map<std::string, int> kinds, points;
  Signs signs(service);
  const auto start = Clock::now();
  const auto elapsed_s = [&] {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  for (int round = 0;; ++round) {
    const double share = flags.minutes > 0 ? elapsed_s() / (60 * flags.minutes)
                                           : static_cast<double>(round) / flags.rounds;
    if (share >= 1) break;
    const bool calm = static_cast<int>(share * 6) % 2 == 1;
    Trouble trouble = always ? *always : draw(random, true);
    while (!always && calm && ends_a_service(trouble)) trouble = draw(random, true);
    ++kinds[kind(trouble)];
    const int struck_before = drill.tally().struck;
    if (trouble.hurts_the_store()) load.excuse();
    take(drill.round(trouble),
         fmt::format("round {}, {} [{}]", round, describe(trouble), replay(trouble)));
    if (!evicts) load.demand();
    if (drill.tally().struck > struck_before)
      for (const Fault& fault : trouble.faults) ++points[std::string(point_of(fault).name)];
    signs.sample(elapsed_s());
    if (!flags.json) fmt::print(stderr, "{:.0f} s: {}\n", elapsed_s(), describe(trouble));
  }
  const double minutes = elapsed_s() / 60;
  take(drill.after_kill(), "after kill -9 of everybody");
  const LibraryLoad::Tally& asked = load.tally();
  if (const std::string complaint = load.complaint(); !complaint.empty()) take({complaint}, "load");
  take(drill.after_stop(), "after the end");

  const DrillTally& tally = drill.tally();
  const nlohmann::json report = {
      {"minutes", minutes},
      {"seed", flags.seed},
      {"keys", flags.keys},
      {"rounds", tally.rounds},
      {"troubles", kinds},
      {"struck_at_points", tally.struck},
      {"points_struck", points},
      {"restarts", service.restarts()},
      {"clients",
       {{"answers", tally.answers},
        {"hits", tally.hits},
        {"errors", tally.errors},
        {"killed", tally.killed},
        {"memory_only", tally.memory_only},
        {"queued", tally.queued},
        {"longest_s", tally.longest_s}}},
      {"load",
       {{"answers", asked.answers.load()},
        {"hits", asked.hits.load()},
        {"hits_demanded", asked.demanded.load()},
        {"errors", asked.errors.load()},
        {"strange", asked.strange.load()}}},
      {"lost", tally.lost + asked.lost},
      {"wrong", tally.wrong + asked.wrong},
      {"unanswered", tally.unanswered + asked.late},
      {"evicted", signs.evicted()},
      {"processes", signs.report()},
      {"complaints", complaints},
  };
  fmt::print("{}\n", report.dump(flags.json ? -1 : 2));
  return complaints.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  if (const auto code = parse(argc, argv, flags)) return *code;
  return soak(flags);
}
