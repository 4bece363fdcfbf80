// A coordinator under load: kiln-coordinator as a process, a thousand connections of a generator
// beside it on the same cores, and redis-server answering GETs of the same sizes over as many
// connections in turn with it, so that whatever else the machine does hits both.
//
//   service_bench [--json] [--connections N] [--rounds N] [--seconds S] [--rate N] [--window N]
//                 [--also COORDINATOR]... [PART...]
//
// Parts, all by default: lookups blobs rate curve one-key storm. CPU time a request is the server's
// own, so it says something on a busy machine too. --also puts another build's kiln-coordinator (or
// a script that sets something and execs one) in turn with this build's in lookups and blobs.
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <deque>

#include "schema/codec.h"
#include "tests/bench/crowd.h"
#include "tests/bench/curve_dialogue.h"
#include "tests/bench/score.h"
#include "tests/bench/servers.h"
#include "tests/bench/stock.h"
#include "tests/bench/tls_dialogue.h"
#include "tests/coordinator/fake_fleet.h"

namespace kiln::bench {
namespace {

constexpr size_t kStorm = 5'000;  // clients

struct BenchOptions {
  bool json = false;
  size_t connections = 1'000;
  int rounds = 5, window = 1;
  double seconds = 2, rate = 50'000;
  std::vector<Path> also;
  std::vector<std::string> parts;
  bool wants(const std::string& part) const {
    return parts.empty() || std::ranges::find(parts, part) != parts.end();
  }
  std::chrono::milliseconds round() const {
    return std::chrono::milliseconds(static_cast<int>(seconds * 1000));
  }
};

// Another build's coordinator, in turn with this build's.
struct Contender {
  Path program;
  Server server;
  Stock stock;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// One server's rounds.
struct Rounds {
  std::vector<double> per_s, p50_ms, p99_ms, cpu_us;
  void take(Crowd& crowd, const Server& server, std::chrono::milliseconds time, int window = 1) {
    const double before_s = server.use().cpu_s;
    const Load load = crowd.saturate(window, time);
    per_s.push_back(load.per_s());
    p50_ms.push_back(load.p50_ms);
    p99_ms.push_back(load.p99_ms);
    cpu_us.push_back(1e6 * (server.use().cpu_s - before_s) / static_cast<double>(load.answers));
  }
  void add_to(Score& score, const std::string& name) const {
    score.add(name, median(per_s), "/s");
    score.add(name + ", p50", median(p50_ms), "ms");
    score.add(name + ", p99", median(p99_ms), "ms");
    score.add(name + ", the server's CPU time", median(cpu_us), "us each");
  }
};

class Bench {
 public:
  explicit Bench(const BenchOptions& options)
      : options_(options),
        dir_(*TempDir::create("kiln-service-bench")),
        kiln_(Server::kiln(dir_.path())),
        stock_(fill(kiln_.endpoint())) {
    for (const Path& program : options_.also) {
      const Path dir = dir_.path() / fmt::format("also-{}", also_.size());
      std::filesystem::create_directories(dir);
      Server server = Server::kiln(dir, {}, program);
      Stock stock = fill(server.endpoint());
      also_.push_back({program, std::move(server), std::move(stock)});
    }
  }

  void run() {
    if (options_.wants("lookups")) look_ups_beside_redis();
    if (options_.wants("blobs")) blobs_beside_redis();
    if (options_.wants("rate")) offered_load();
    if (options_.wants("curve")) look_ups_with_keys();
    if (options_.wants("storm")) reconnect_storm();
    if (options_.wants("one-key")) one_new_key();
  }
  const Score& score() const { return score_; }

 private:
  // What a redis is given to answer with.
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  Pairs manifests() const {
    Pairs pairs;
    for (size_t i = 0; i < stock_.graphs.size(); ++i)
      pairs.emplace_back(stock_.graphs[i].digest.hex(), stock_.manifests[i]);
    return pairs;
  }
  static RedisQuestions get_commands(const Pairs& pairs) {
    RedisQuestions gets;
    for (const auto& [key, value] : pairs) gets.keys.push_back(resp_command({"GET", key}));
    return gets;
  }

  void look_ups_beside_redis() {
    beside_redis(
        fmt::format("look-ups, manifests of {} bytes", stock_.manifest_bytes()),
        [](const Stock& stock) { return look_ups(stock); }, manifests(), "> 50000");
  }

  void blobs_beside_redis() {
    Pairs pairs;
    for (const Digest& blob : stock_.blobs)
      pairs.emplace_back(blob.hex(), std::string(kBlobBytes, 'x'));
    beside_redis("artifacts of 16 KiB", blob_fetches, pairs, "");
  }

  // This build's coordinator, the others and redis, a round each in turn.
  void beside_redis(const std::string& name, KilnQuestions (*ask)(const Stock&), const Pairs& pairs,
                    const std::string& goal) {
    const Server redis = Server::redis(dir_.path());
    fill_redis(redis.port(), pairs);
    const RedisQuestions gets = get_commands(pairs);
    struct Side {
      std::string name;
      const Server* server;
      KilnQuestions questions;
      std::unique_ptr<Crowd> crowd;
      Rounds rounds;
    };
    std::deque<Side> sides;  // a crowd refers to its questions
    const auto add = [&](const std::string& side, const Server& server, const Stock& stock) {
      Side& added = sides.emplace_back(Side{side, &server, ask(stock), nullptr, {}});
      added.crowd = std::make_unique<Crowd>(server.port(), options_.connections,
                                            [&] { return kiln_dialogue(added.questions); });
    };
    add("kiln", kiln_, stock_);
    for (const Contender& other : also_) add(other.program.string(), other.server, other.stock);
    Side& last = sides.emplace_back(Side{"redis", &redis, {}, nullptr, {}});
    last.crowd = std::make_unique<Crowd>(redis.port(), options_.connections,
                                         [&] { return redis_dialogue(gets); });
    for (Side& side : sides) side.crowd->once();
    for (int i = 0; i < options_.rounds; ++i)
      for (Side& side : sides)
        side.rounds.take(*side.crowd, *side.server, options_.round(), options_.window);
    for (const Side& side : sides) side.rounds.add_to(score_, name + ": " + side.name);
    if (!goal.empty())
      score_.add(name + ": kiln against 50,000/s", median(sides.front().rounds.per_s), "/s", goal);
    for (const Side& side : sides) {
      if (&side == &last) continue;
      std::vector<double> ratios;
      for (size_t i = 0; i < side.rounds.per_s.size(); ++i)
        ratios.push_back(side.rounds.per_s[i] / last.rounds.per_s[i]);
      score_.add(fmt::format("{}: {} / redis, median of rounds", name, side.name), median(ratios),
                 "x", &side == &sides.front() ? "> 1.0" : "");
    }
  }

  void offered_load() {
    const KilnQuestions questions = look_ups(stock_);
    Crowd crowd(kiln_.port(), options_.connections, [&] { return kiln_dialogue(questions); });
    crowd.once();
    for (const double rate : {options_.rate / 5, options_.rate}) {
      const Load load = crowd.offer(rate, 2 * options_.round());
      const std::string name = fmt::format("look-ups offered at {:.0f}/s", rate);
      score_.add(name + ": answered", load.per_s(), "/s");
      score_.add(name + ": p50", load.p50_ms, "ms");
      score_.add(name + ": p99", load.p99_ms, "ms", "< 5",
                 fmt::format("max {:.1f} ms", load.max_ms));
    }
  }

  // A second coordinator, which asks for keys, in turn with the first, which does not, and with a
  // redis that speaks TLS: the same generator, the same programs.
  void look_ups_with_keys() {
    const Path dir = dir_.path() / "keys";
    const StockedDirectory stocked(dir);
    const Server locked = stocked.start(true);
    const KilnQuestions plain = look_ups(stock_), sealed = look_ups(stocked.stock, false);
    Crowd open(kiln_.port(), options_.connections, [&] { return kiln_dialogue(plain); });
    Crowd curve(locked.port(), options_.connections,
                [&] { return curve_dialogue(sealed, stocked.key); });
    const Server redis = Server::redis(dir, true);
    fill_redis(redis.port(), manifests());
    const RedisQuestions gets = get_commands(manifests());
    const auto tls = tls_client();
    Crowd sealed_gets(redis.tls_port(), options_.connections,
                      [&] { return redis_tls_dialogue(gets, tls); });
    for (Crowd* crowd : {&open, &curve, &sealed_gets}) crowd->once();
    Rounds without, with, beside;
    std::vector<double> to_open, to_redis;
    for (int i = 0; i < options_.rounds; ++i) {
      without.take(open, kiln_, options_.round());
      with.take(curve, locked, options_.round());
      beside.take(sealed_gets, redis, options_.round());
      to_open.push_back(with.per_s.back() / without.per_s.back());
      to_redis.push_back(with.per_s.back() / beside.per_s.back());
    }
    without.add_to(score_, "look-ups, CURVE off");
    with.add_to(score_, "look-ups, CURVE on");
    beside.add_to(score_, "look-ups, redis over TLS");
    score_.add("look-ups: CURVE on / off, median of rounds", median(to_open), "x");
    score_.add("look-ups: CURVE / redis over TLS, median of rounds", median(to_redis), "x");
    for (const double rate : {options_.rate / 2, options_.rate}) {
      const Load load = curve.offer(rate, 2 * options_.round());
      const std::string name = fmt::format("look-ups offered at {:.0f}/s, CURVE on", rate);
      score_.add(name + ": answered", load.per_s(), "/s");
      score_.add(name + ": p99", load.p99_ms, "ms", "", fmt::format("max {:.1f} ms", load.max_ms));
    }
  }

  // The coordinator is killed and started again; everybody comes back at once, says hello and asks.
  void reconnect_storm() {
    for (const bool keys : {false, true}) {
      const Path dir = dir_.path() / (keys ? "storm-keys" : "storm");
      const StockedDirectory stocked(dir);
      const KilnQuestions questions = look_ups(stocked.stock, !keys);
      const auto start = Crowd::Clock::now();
      const Server again = stocked.start(keys);
      Crowd crowd(again.port(), kStorm, [&] {
        return keys ? curve_dialogue(questions, stocked.key) : kiln_dialogue(questions);
      });
      crowd.once();
      const std::chrono::duration<double> took = Crowd::Clock::now() - start;
      const std::string name =
          fmt::format("{} clients after a restart{}", kStorm, keys ? ", CURVE on" : ", CURVE off");
      score_.add(name + ": from its start to the last answer", took.count(), "s", "< 10");
      score_.add(name + ": memory of the coordinator", again.use().resident_bytes / (1 << 20),
                 "MiB");
    }
  }

  // Everybody asks for a program that nobody has: one graph comes, each candidate is compiled once.
  void one_new_key() {
    const NormalForm graph = test_graph(1'000'003);
    Tally tally;
    FakeWorkerOptions named;
    named.name = "another";  // the first one's name is its own until its end was noticed
    const FakeWorker worker(kiln_.endpoint(), tally, named);
    CompileRequest request;
    request.request = 1;
    request.graph = graph.digest;
    request.target = test_target();
    request.mode = Mode::kMaxAutotune;
    const KilnQuestions questions{{kiln_frame(request)}, {}};
    int uploads = 0, tuned = 0, joined = 0;
    const auto on_message = [&](const Message& message) -> Heard {
      if (std::holds_alternative<NeedGraph>(message)) {
        ++uploads;
        CompileRequest with_graph = request;
        with_graph.graph_text = print(graph.graph);
        return {false, encode(with_graph)};
      }
      const auto* reply = std::get_if<CompileReply>(&message);
      if (reply == nullptr) return {};
      CHECK(reply->outcome.has_value(), reply->outcome ? "" : reply->outcome.error().message);
      ++(reply->outcome == CacheOutcome::kTuned ? tuned : joined);
      return {true, ""};
    };
    Crowd crowd(kiln_.port(), options_.connections,
                [&] { return kiln_conversation(questions, on_message); });
    const Load load = crowd.once();
    int most = 0;
    for (const auto& [candidate, times] : tally.compiled()) most = std::max(most, times);
    const std::string name = fmt::format("{} clients, one new key", options_.connections);
    score_.add(name + ": compiles of a candidate, at most", most, "", "< 1.5",
               fmt::format("{} candidates, {} uploads of the graph, {} tuned, {} joined",
                           tally.compiled().size(), uploads, tuned, joined));
    score_.add(name + ": until the last has its answer", load.max_ms, "ms");
  }

  const BenchOptions options_;
  const TempDir dir_;
  const Server kiln_;
  const Stock stock_;
  std::vector<Contender> also_;
  Score score_;
};

void raise_descriptor_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) {
  kiln::bench::BenchOptions options;
  CLI::App app("A coordinator under load, beside redis-server");
  app.add_flag("--json", options.json);
  app.add_option("--connections", options.connections)->capture_default_str();
  app.add_option("--rounds", options.rounds)->capture_default_str();
  app.add_option("--seconds", options.seconds, "of each round")->capture_default_str();
  app.add_option("--window", options.window,
                 "questions that each connection keeps open (lookups, blobs)")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--rate", options.rate, "offered look-ups a second")->capture_default_str();
  app.add_option("--also", options.also, "another coordinator, in turn (lookups, blobs)")
      ->allow_extra_args(false)
      ->check(CLI::ExistingFile);
  app.add_option("PART", options.parts)
      ->check(CLI::IsMember({"lookups", "blobs", "rate", "curve", "one-key", "storm"}));
  CLI11_PARSE(app, argc, argv);
  kiln::bench::raise_descriptor_limit();
  kiln::bench::Bench bench(options);
  bench.run();
  fmt::print("{}\n", options.json ? bench.score().json().dump(2) : bench.score().markdown());
  return 0;
}
