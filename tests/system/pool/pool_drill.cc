#include "tests/system/pool/pool_drill.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "compiler_core/base/clock.h"
#include "tests/system/faults/small_program.h"

namespace kiln::testing {
namespace {

using nlohmann::json;
using Kind = PoolTrouble::Kind;

constexpr int kDeadlineS = 90;                         // a client's own
constexpr std::chrono::seconds kClientsPatience{120};  // ours for a client
constexpr std::chrono::seconds kAllIsWellBy{240};      // until what was asked for is stored

int64_t number(const std::string& text, int64_t otherwise) {
  return text.empty() ? otherwise : std::stoll(text);
}

// Such a trouble may keep an answer in memory alone, for as long as the store is away or the leader
// does not know that it leads no more.
bool may_cost_the_store(Kind kind) {
  return kind != Kind::kNothing && kind != Kind::kKillAtStatement && kind != Kind::kKillAtTake &&
         kind != Kind::kKillAtPut && kind != Kind::kCutClients && kind != Kind::kLoseClients;
}

}  // namespace

// ---- Clients ----

PoolDrill::Ask PoolDrill::begin(std::string name, int program) const {
  const Path programs = pool_.root() / "programs";
  std::filesystem::create_directories(programs);
  const SmallProgram made = small_program(programs, program);
  const Path out = pool_.root() / (name + ".out"), err = pool_.root() / (name + ".err");
  std::filesystem::remove(err);
  Ask ask{std::move(name), program, Child::none(), Clock::now()};
  std::vector<std::string> words = {binary("kiln"),
                                    "run",
                                    made.graph,
                                    "--expect",
                                    made.answer,
                                    "--runs",
                                    "1",
                                    "--threads",
                                    "1",
                                    "--mode",
                                    "max-autotune",
                                    "--no-fallback",
                                    "--json",
                                    "--deadline",
                                    std::to_string(kDeadlineS),
                                    "--coordinator",
                                    pool_.endpoints()};
  if (program % 2 == 1) words.emplace_back("--blob-links");
  ask.child = Child::start(words, out, err);
  return ask;
}

// Two that are new, the first of them twice, and two that were answered before.
std::vector<PoolDrill::Ask> PoolDrill::begin_all() {
  std::vector<Ask> asks;
  const int fresh = next_program_;
  next_program_ += 2;
  asks.push_back(begin("new", fresh));
  asks.push_back(begin("joins", fresh));
  asks.push_back(begin("other", fresh + 1));
  const std::vector<int> before(answered_.begin(), answered_.end());
  for (int n = 0; n < 2 && !before.empty(); ++n)
    asks.push_back(begin(fmt::format("old{}", n), before[random_() % before.size()]));
  return asks;
}

std::string PoolDrill::told(const Ask& ask) const {
  const auto text = [&](const char* end) {
    std::string all = read_file(pool_.root() / (ask.name + end)).value_or("").substr(0, 700);
    std::ranges::replace(all, '\n', ' ');
    return all;
  };
  return fmt::format("client '{}' (program {}) ended with {} after {:.1f} s: {} {}", ask.name,
                     ask.program, ask.child.exit_code(), seconds_since(ask.began), text(".out"),
                     text(".err"));
}

json PoolDrill::answer(const Ask& ask) const {
  json answer =
      json::parse(read_file(pool_.root() / (ask.name + ".out")).value_or(""), nullptr, false);
  return answer.is_object() ? answer : json::object();
}

void PoolDrill::judge(const Ask& ask, const PoolTrouble& trouble) {
  const int code = ask.child.exit_code();
  const json answer = this->answer(ask);
  tally_.longest_s = std::max(tally_.longest_s, seconds_since(ask.began));
  if (code == 3 || code == 5) {
    ++tally_.errors;
    if (trouble.kind == Kind::kNothing)
      complain("an error, though nothing went wrong: " + told(ask));
    return;
  }
  if (code != 0) {
    tally_.wrong += code == 1 && answer.contains("ok") ? 1 : 0;
    return complain("wrong, or no answer: " + told(ask));
  }
  ++tally_.answers;
  const bool is_hit = answer.value("cache", "") == "hit";
  tally_.hits += is_hit ? 1 : 0;
  if (promised_.contains(ask.program) && !is_hit) {
    ++tally_.lost;
    complain("lost, though it was answered as stored: " + told(ask));
  }
  if (!answer.value("memory_only", false)) {
    answered_.insert(ask.program);
  } else {
    ++tally_.memory_only;
    if (!may_cost_the_store(trouble.kind))
      complain("in memory only, though the store is there: " + told(ask));
  }
}

// Until it is stored, and then somebody else has it as a hit.
void PoolDrill::insist(int program) {
  bool forgot = false;
  for (const auto start = Clock::now();;
       std::this_thread::sleep_for(std::chrono::milliseconds(100))) {
    Ask ask = begin(fmt::format("again{}", ++asks_ % 8), program);
    while (ask.child.running() && seconds_since(ask.began) < kClientsPatience.count()) {
      pool_.tend();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    const bool was_answered = answered_.contains(program);
    promised_ = answered_;
    if (!ask.child.running()) {
      PoolTrouble mended;
      mended.kind = Kind::kS3;  // its traces may be there for a while: a word on stderr is enough
      judge(ask, mended);
      if (was_answered && ask.child.exit_code() == 0) return;
      // What only memory has would be stored after a minute; without memory it is tuned again.
      if (answer(ask).value("memory_only", false) && !std::exchange(forgot, true)) forget_memory();
    }
    if (seconds_since(start) < kAllIsWellBy.count()) continue;
    ++tally_.unanswered;
    return complain("after all is mended, not answered as stored: " + told(ask));
  }
}

// ---- Trouble ----

// Binaries come from S3 again.
void PoolDrill::forget_memory() {
  for (size_t n = 0; n < pool_.size(); ++n) pool_.kill(n);
}

void PoolDrill::arm(const PoolTrouble& trouble, size_t leader) {
  const auto killer = [this](size_t coordinator) {
    return [pid = pool_.pid(coordinator)] { ::kill(pid, SIGKILL); };
  };
  if (trouble.kind == Kind::kKillAtStatement)
    pool_.statements(leader).arm(trouble.point, killer(leader));
  if (trouble.kind == Kind::kKillAtPut) pool_.s3().arm_put(trouble.point.after, killer(leader));
  if (trouble.kind != Kind::kKillAtTake) return;
  const auto once = std::make_shared<std::atomic<bool>>(false);
  for (size_t n = 0; n < pool_.size(); ++n) {
    if (n == leader) continue;
    pool_.statements(n).arm({"INSERT INTO terms", trouble.point.after}, [once, kill = killer(n)] {
      if (!once->exchange(true)) kill();
    });
  }
}

void PoolDrill::strike(const PoolTrouble& trouble, size_t leader) {
  if (trouble.kind == Kind::kKillAtTake) pool_.kill(leader);
  if (trouble.kind == Kind::kStop) pool_.signal(leader, SIGSTOP);
  if (trouble.kind == Kind::kCutPostgres) pool_.set_postgres(leader, trouble.wire);
  if (trouble.kind == Kind::kCutClients) pool_.to_clients(leader).set(trouble.wire);
  if (trouble.kind == Kind::kCutS3) pool_.to_s3().set(trouble.wire);
  if (trouble.kind == Kind::kFailOver) pool_.fail_over();
  if (trouble.kind == Kind::kS3) pool_.s3().set(trouble.s3);
  if (trouble.kind == Kind::kLosePostgres) pool_.lose_postgres(leader, trouble.lost);
  if (trouble.kind == Kind::kLoseClients) pool_.lose_clients(leader, trouble.lost);
  if (trouble.kind == Kind::kLoseS3) pool_.lose_s3(trouble.lost);
}

bool PoolDrill::is_struck(const PoolTrouble& trouble, size_t leader) {
  if (trouble.kind == Kind::kKillAtStatement) return pool_.statements(leader).struck();
  if (trouble.kind == Kind::kKillAtPut || trouble.kind == Kind::kS3) return pool_.s3().struck();
  if (trouble.kind != Kind::kKillAtTake) return true;
  bool any = false;
  for (size_t n = 0; n < pool_.size(); ++n)
    any = any || (n != leader && pool_.statements(n).struck());
  return any;
}

void PoolDrill::wait_for(std::vector<Ask>& asks, const PoolTrouble& trouble, size_t leader) {
  const auto start = Clock::now();
  bool struck = false, mended = false, came = false;
  double mends_ms = trouble.after_ms + trouble.for_ms;
  for (bool waits = true; waits || !struck || (trouble.for_ms > 0 && !mended && came);
       std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
    const double now_ms = 1000 * seconds_since(start);
    if (!struck && now_ms >= trouble.after_ms) {
      strike(trouble, leader);
      struck = true;
    }
    if (trouble.kind == Kind::kS3 && !came) mends_ms = now_ms + trouble.for_ms;
    came = came || (struck && is_struck(trouble, leader));
    if (!mended && trouble.for_ms > 0 && now_ms >= mends_ms) {
      pool_.mend();
      mended = true;
    }
    // Only who is armed may take the term.
    if (came || trouble.kind != Kind::kKillAtTake) pool_.tend();
    waits = false;
    for (Ask& ask : asks) waits = ask.child.running() || waits;
    if (seconds_since(start) > kClientsPatience.count()) break;
  }
  tally_.struck += came ? 1 : 0;
}

// ---- A round ----

std::vector<std::string> PoolDrill::round(const PoolTrouble& trouble) {
  complaints_.clear();
  ++tally_.rounds;
  if (trouble.kind == Kind::kS3) forget_memory();
  const auto leader = pool_.await_leader();
  if (!leader) return {"nobody leads when the round begins"};
  arm(trouble, *leader);
  promised_ = answered_;
  std::vector<Ask> asks = begin_all();
  wait_for(asks, trouble, *leader);
  pool_.mend();
  for (Ask& ask : asks) {
    if (!ask.child.running()) {
      judge(ask, trouble);
      continue;
    }
    ++tally_.unanswered;
    complain(
        fmt::format("client '{}' has no answer after {} s", ask.name, kClientsPatience.count()));
  }
  if (!pool_.await_leader()) complain("nobody leads after all is mended");
  insist(asks.front().program);
  insist(asks[2].program);
  for (std::string& what : pool_.complaints()) complain(std::move(what));
  for (std::string& what : pool_.take_bad_ends()) complain(std::move(what));
  count();
  return complaints_;
}

// Figures, not complaints: whoever straggles on a busy machine is helped by another worker.
void PoolDrill::count() {
  const Pool::Builds now = pool_.builds();
  tally_.builds = now.builds;
  tally_.candidates = now.candidates;
  tally_.takeovers = static_cast<int>(
      number(pool_.ask("SELECT count(DISTINCT epoch) - 1 FROM judged.history WHERE what = 'terms'"),
             tally_.takeovers));
}

std::vector<std::string> PoolDrill::after_kill() {
  complaints_.clear();
  forget_memory();
  if (!pool_.await_leader()) return {"nobody leads after all were killed"};
  for (const int program : std::set<int>(answered_)) insist(program);
  for (std::string& what : pool_.complaints()) complain(std::move(what));
  return complaints_;
}

}  // namespace kiln::testing
