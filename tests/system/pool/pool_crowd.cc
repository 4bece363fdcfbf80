#include "tests/system/pool/pool_crowd.h"

#include <sys/resource.h>

#include <fmt/format.h>

#include <chrono>
#include <latch>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "client/client.h"
#include "compiler_core/base/check.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/tune/measurement.h"
#include "tests/system/faults/small_program.h"

namespace kiln::testing {
namespace {

constexpr std::chrono::seconds kDeadline{180}, kToConnect{60};

// A connection takes some eight.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// As the leader counts: others refuse, and a pool that has just been busy may have none for a moment.
int64_t hedged(const Pool& pool) {
  const auto deadline = std::chrono::steady_clock::now() + kToConnect;
  while (true) {
    const auto stats =
        run({binary("kiln"), "stats", "--json", "--coordinator", pool.endpoints()}).json();
    if (stats.is_object() && stats.contains("hedged")) return stats["hedged"].get<int64_t>();
    CHECK(std::chrono::steady_clock::now() < deadline, "a pool's leader says what it has counted");
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

// They are on record without times.
int64_t confirmations(const Pool& pool) {
  return std::stoll(pool.insist(
      fmt::format("SELECT count(*) FROM kiln.records WHERE verdict = {} AND samples = ''",
                  static_cast<int>(Verdict::kOk))));
}

}  // namespace

CrowdTally ask_at_once(Pool& pool, int clients, int number) {
  raise_descriptor_limit();
  const Path programs = pool.root() / "programs";
  std::filesystem::create_directories(programs);
  const auto graph = parse_graph(read_file(small_program(programs, number).graph).value());
  CHECK(graph.has_value(), "small_program.h writes what can be read");
  const Pool::Builds builds = pool.builds();
  const int64_t hedged_before = hedged(pool), confirmed_before = confirmations(pool);
  CrowdTally tally;
  std::mutex mu;
  std::latch all_are_here(clients);
  const auto ask = [&] {
    ClientOptions options;
    options.coordinator = pool.direct_endpoints();
    options.allow_fallback = false;
    options.threads = 1;
    options.connect_timeout = kToConnect;
    const auto client = Client::create(options);
    all_are_here.arrive_and_wait();
    const auto start = std::chrono::steady_clock::now();
    CompileOptions wanted;
    wanted.mode = Mode::kMaxAutotune;
    wanted.deadline = kDeadline;
    const auto answer = (*client)->fetch(*graph, wanted);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const std::scoped_lock lock(mu);
    tally.longest_s = std::max(tally.longest_s, took.count());
    if (!answer) {
      if (tally.error.empty()) tally.error = answer.error().message;
      return;
    }
    ++tally.answered;
    tally.tuned += (*answer)->outcome() == Outcome::kTuned ? 1 : 0;
    tally.joined += (*answer)->outcome() == Outcome::kJoined ? 1 : 0;
    tally.hits += (*answer)->outcome() == Outcome::kHit ? 1 : 0;
  };
  std::vector<std::thread> threads;
  for (int n = 0; n < clients; ++n) threads.emplace_back(ask);
  for (std::thread& thread : threads) thread.join();
  const Pool::Builds now = pool.builds();
  tally.builds = {now.builds - builds.builds, now.candidates - builds.candidates};
  tally.hedged = hedged(pool) - hedged_before;
  tally.confirmed = confirmations(pool) - confirmed_before;
  return tally;
}

}  // namespace kiln::testing
