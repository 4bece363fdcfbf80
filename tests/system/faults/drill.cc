#include "tests/system/faults/drill.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "compiler_core/base/clock.h"
#include "tests/system/faults/inspection.h"
#include "tests/system/faults/small_program.h"

namespace kiln::testing {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr int kPatienceS = ClientAsk::kPatienceS, kForgottenS = 40;

}  // namespace

Drill::Drill(LiveService& service, FaultControl& faults, uint64_t seed)
    : service_(service), faults_(faults), random_(seed) {}

void Drill::complain(std::string what) {
  complaints_.push_back(std::move(what));
}

void Drill::complain(std::vector<std::string> all) {
  for (std::string& what : all) complain(std::move(what));
}

// ---- A round begins ----

Drill::Key Drill::new_key(bool tuned) {
  if (max_programs_ > 0 && next_program_ >= max_programs_)
    return {static_cast<int>(random_() % static_cast<uint64_t>(max_programs_)), tuned};
  return {next_program_++, tuned};
}

// A signing key is made where there is none: whoever is to make one finds its own gone.
void Drill::prepare(const Trouble& trouble) {
  faults_.arm(trouble.faults);
  if (trouble.makes_a_key("kiln")) std::filesystem::remove_all(tier_of(service_) / "signing");
  for (const std::string_view program : {"kiln-worker", "kiln-coordinator"})
    if (trouble.restarts(program)) restart(trouble, program);
}

// By SIGTERM, with the faults armed: it may stop at one of them on its way.
void Drill::restart(const Trouble& trouble, std::string_view program) {
  Child& child = program == "kiln-worker" ? service_.worker(0) : service_.coordinator();
  child.signal(SIGTERM);
  const auto start = Clock::now();
  while (child.running() && seconds_since(start) < 60) {
    pause_ms(2);
    if (trouble.stops_at_a_point() && seconds_since(start) * 1000 > trouble.for_ms)
      child.signal(SIGCONT);
  }
  if (child.running()) complain(fmt::format("{} does not end at SIGTERM", program));
  if (trouble.makes_a_key(program)) std::filesystem::remove_all(service_.data() / "signing");
  service_.tend();
}

// A search takes longer than the rest together: always where it matters, now and then elsewhere.
bool Drill::wants_a_search(const Trouble& trouble) {
  return trouble.strikes("kiln-worker") || trouble.strikes("kiln-runner") || random_() % 4 == 0;
}

// Something new, the same again, what was asked for before with and without a tier, a search whose
// first candidate a worker has compiled already, and something that nobody waits for.
std::vector<ClientAsk> Drill::begin(const Trouble& trouble) {
  std::vector<ClientAsk> asks;
  const Key fresh = new_key(false);
  asks.push_back(ClientAsk::run(service_, "new", fresh, true));
  asks.push_back(ClientAsk::run(service_, "joins", fresh, false));
  if (trouble.meets_the_queue() || random_() % 8 == 0)
    asks.push_back(ClientAsk::queue(service_, "detached", new_key(false)));
  const auto is_untuned = [this](const Key& key) {
    return !key.tuned && !answered_.contains({key.program, true});
  };
  const auto any_of = [this](const std::set<Key>& keys) {
    return *std::next(keys.begin(), static_cast<int64_t>(random_() % keys.size()));
  };
  if (!answered_.empty()) asks.push_back(ClientAsk::run(service_, "old", any_of(answered_), false));
  if (!kept_.empty()) asks.push_back(ClientAsk::run(service_, "kept", any_of(kept_), true));
  const auto untuned = std::find_if(answered_.rbegin(), answered_.rend(), is_untuned);
  if (untuned != answered_.rend() && wants_a_search(trouble))
    asks.push_back(ClientAsk::run(service_, "tuned", {untuned->program, true}, false));
  return asks;
}

// ---- Something goes wrong ----

void Drill::strike(const Trouble& trouble, std::vector<ClientAsk>& asks) {
  const auto send = [&](Victim victim, int signal) {
    if (victim == Victim::kCoordinator) service_.coordinator().signal(signal);
    if (victim == Victim::kWorker) service_.worker(0).signal(signal);
    if (victim == Victim::kRunner)
      for (const pid_t runner : service_.runners()) ::kill(runner, signal);
    if (victim == Victim::kCompiler)
      for (const pid_t pass : service_.compilers()) ::kill(pass, signal);
    if (victim == Victim::kClient) asks.front().signal(signal);
  };
  send(trouble.killed, SIGKILL);
  send(trouble.stopped, SIGSTOP);
  if (!trouble.fills.empty()) fill_disk(trouble.fills);
  if (trouble.rots) rotten_.insert(rot(service_, random_()));
  if (service_.proxy() != nullptr) {
    if (trouble.drops) service_.proxy()->drop();
    service_.proxy()->set(trouble.cut);
  }
}

void Drill::mend(const Trouble& trouble, std::vector<ClientAsk>& asks) {
  if (service_.proxy() != nullptr) service_.proxy()->set(TcpProxy::Mode::kForward);
  faults_.disarm();
  if (!trouble.fills.empty()) free_disk(trouble.fills);
  if (trouble.stopped == Victim::kNobody && !trouble.stops_at_a_point()) return;
  service_.wake();
  for (ClientAsk& ask : asks) ask.signal(SIGCONT);
}

// A moment's trouble is mended when its time is over, a stop at a point some time after it came,
// and what else waits at a point when everybody has an answer.
void Drill::wait_for(std::vector<ClientAsk>& asks, const Trouble& trouble) {
  const auto start = Clock::now();
  bool struck = false, mended = false;
  const bool stops = trouble.stops_at_a_point();
  double mend_s = (trouble.after_ms + trouble.for_ms) / 1000.0;
  if (!trouble.faults.empty() || !trouble.fills.empty()) mend_s = kPatienceS;
  for (bool waits = true; waits || !struck; pause_ms(2)) {
    const double now_s = seconds_since(start);
    if (!struck && now_s * 1000 >= trouble.after_ms) {
      strike(trouble, asks);
      struck = true;
    }
    if (stops && mend_s == kPatienceS && faults_.struck() > 0)
      mend_s = now_s + trouble.for_ms / 1000.0;
    if (!mended && now_s >= mend_s) {
      mend(trouble, asks);
      mended = true;
    }
    service_.tend();
    waits = false;
    for (ClientAsk& ask : asks) waits = ask.running(now_s) || waits;
    if (now_s > kPatienceS) break;
  }
  mend(trouble, asks);
}

// ---- What came of it ----

// Whether anything of it was met: else nobody has an excuse.
bool Drill::came(const Trouble& trouble) const {
  if (trouble.is_nothing()) return false;
  return trouble.faults.empty() || faults_.struck() > 0 || trouble.restarts("kiln-coordinator") ||
         trouble.restarts("kiln-worker");
}

// Whoever misses what was promised when the round began has found a loss, and mends it by asking:
// nobody after it would see one.
void Drill::judge_answer(const ClientAsk& ask, const Trouble& trouble) {
  const json answer = ask.answer();
  const bool hit = answer.value("cache", "") == "hit";
  const bool store_is_hurt = trouble.hurts_the_store() && came(trouble);
  ++tally_.answers;
  tally_.hits += hit ? 1 : 0;
  if (!hit && !evicts_ && !store_is_hurt && promised_.contains(ask.key())) {
    ++tally_.lost;
    complain("lost, though it was answered as stored: " + ask.told());
  }
  const bool memory_only = answer.value("memory_only", false);
  tally_.memory_only += memory_only ? 1 : 0;
  if (memory_only && !store_is_hurt)
    complain("in memory only, though the disk takes everything: " + ask.told());
  // A hit of the client's own tier says nothing of the service.
  if (!memory_only && !(ask.has_tier() && hit)) answered_.insert(ask.key());
  if (!ask.has_tier()) return;
  kept_.insert(ask.key());
  const Path manifest =
      tier_of(service_) / "programs" / (answer.value("program_key", "") + ".json");
  std::error_code error;
  const auto written = std::filesystem::last_write_time(manifest, error);
  swept_ = swept_ || (!error && written > round_began_);
}

void Drill::judge(const ClientAsk& ask, const Trouble& trouble) {
  const int code = ask.exit_code();
  tally_.longest_s = std::max(tally_.longest_s, ask.seconds());
  if (code == 0 && ask.is_queued()) {
    ++tally_.queued;
  } else if (code == 0) {
    judge_answer(ask, trouble);
  } else if (code == 128 + SIGKILL) {
    ++tally_.killed;
    if (trouble.killed != Victim::kClient && !trouble.strikes("kiln"))
      complain("killed by nobody: " + ask.told());
  } else if (code == 3 || code == 5) {
    ++tally_.errors;
    if (ask.error().empty()) complain("an error without a word: " + ask.told());
    if (!came(trouble)) complain("an error, though nothing went wrong: " + ask.told());
  } else if (code == 1 && ask.answer().contains("ok")) {
    ++tally_.wrong;
    complain("wrong: " + ask.told());
  } else {
    complain("not an answer: " + ask.told());
  }
}

// What was queued is there without anybody's asking.
void Drill::await_queue(const std::vector<ClientAsk>& asks) {
  const auto promised = [](const ClientAsk& ask) {
    return ask.is_queued() && ask.exit_code() == 0;
  };
  if (std::ranges::none_of(asks, promised)) return;
  const auto start = Clock::now();
  for (;; pause_ms(20)) {
    const json queue = service_.run_client({"warm", "--status", "--json"}, 5).json();
    if (queue.is_object() && queue.value("queued", 1) + queue.value("running", 1) == 0) {
      if (queue["failed"] != 0) complain("queued, and given up: " + queue.dump());
      break;
    }
    if (seconds_since(start) > kPatienceS)
      return complain("the queue is never empty: " + queue.dump());
    service_.tend();
  }
  for (const ClientAsk& ask : asks)
    if (promised(ask)) answered_.insert(ask.key());
}

// What was answered as stored while the disk refused is there without the coordinator's memory.
void Drill::settle() {
  service_.coordinator().signal(SIGKILL);
  service_.coordinator().wait();
  if (!service_.await()) complain("the service does not come back");
}

// Blobs were lost, though memory may still have them: without it, whoever asks has the program
// tuned again, and from then on it must be there as before.
void Drill::heal() {
  const std::set<Key> doubtful = std::exchange(answered_, {});
  settle();
  for (const Key& key : doubtful) {
    const ClientAsk again = insist(key);
    if (again.exit_code() != 0)
      complain("not tuned again: " + again.told());
    else if (again.answer().value("memory_only", false))
      complain("still in memory only: " + again.told());
    else
      answered_.insert(key);
  }
}

// A failure of the fleet's is remembered for ten seconds, with its age: who asks meanwhile hears
// so. Who asks then may be failed once more, by a connection of a worker that cannot be written and
// is found out by its heartbeats only (8 s): libzmq reads on when a send fails.
ClientAsk Drill::insist(const Key& key) {
  const auto start = Clock::now();
  for (;; pause_ms(100)) {
    ClientAsk again = ClientAsk::run(service_, "again", key, false);
    again.finish();
    const int code = again.exit_code();
    if ((code != 3 && code != 5) || seconds_since(start) > kForgottenS) return again;
  }
}

void Drill::ask_again(const std::vector<ClientAsk>& asks) {
  std::set<Key> keys;
  for (const ClientAsk& ask : asks) keys.insert(ask.key());
  for (const Key& key : keys) {
    const ClientAsk again = insist(key);
    if (again.exit_code() != 0) {
      ++tally_.unanswered;
      complain("after all is mended, " + again.told());
      continue;
    }
    ++tally_.answers;
    const json answer = again.answer();
    if (!evicts_ && answered_.contains(key) && answer.value("cache", "") != "hit") {
      ++tally_.lost;
      complain("lost, though it was answered as stored: " + again.told());
    }
    if (answer.value("memory_only", false))
      complain("still in memory only, after all is mended: " + again.told());
    else
      answered_.insert(key);
  }
}

// What a killed client left in its tier goes when another one next puts something there.
void Drill::check_tier() {
  const std::vector<std::string> now = half_written(tier_of(service_));
  for (const std::string& file : now)
    if (swept_ && std::ranges::find(tier_left_, file) != tier_left_.end())
      complain("left behind: " + file);
  tier_left_ = now;
}

std::vector<std::string> Drill::round(const Trouble& trouble) {
  complaints_.clear();
  swept_ = false;
  round_began_ = std::filesystem::file_time_type::clock::now();
  ++tally_.rounds;
  if (trouble.loses_blobs()) {
    settle();
    check_stored();  // afterwards an earlier loss looks like one of this round's
  }
  prepare(trouble);
  promised_ = answered_;
  std::vector<ClientAsk> asks = begin(trouble);
  wait_for(asks, trouble);
  if (faults_.struck() > 0) ++tally_.struck;
  for (ClientAsk& ask : asks) {
    if (!ask.running(kPatienceS)) {
      judge(ask, trouble);
      continue;
    }
    ++tally_.unanswered;
    complain(fmt::format("client '{}' has no answer after {} s", ask.name(), kPatienceS));
  }
  if (!service_.await()) complain("the service does not come back");
  await_queue(asks);
  if (trouble.loses_blobs())
    heal();
  else if (trouble.hurts_the_store())
    settle();
  ask_again(asks);
  complain(inspect_house(service_, guests_));
  check_tier();
  complain(inspect_blobs(service_, rotten_));
  return complaints_;
}

void Drill::check_stored() {
  if (evicts_) return;
  for (const bool tuned : {false, true}) check_stored(tuned);
}

void Drill::check_stored(bool tuned) {
  std::vector<std::string> arguments = {"compile", "--check", "--json", "--mode",
                                        tuned ? "max-autotune" : "default"};
  const size_t before = arguments.size();
  for (const Key& key : answered_)
    if (key.tuned == tuned)
      arguments.push_back(small_program(programs_of(service_), key.program).graph.string());
  if (arguments.size() == before) return;
  constexpr int kAway = 3;  // the coordinator has not answered in time
  Finished checked;
  for (const auto start = Clock::now(); seconds_since(start) < kPatienceS; pause_ms(100))
    if (checked = service_.run_client(arguments, 120); checked.exit_code != kAway) break;
  if (checked.exit_code == 0) return;
  ++tally_.lost;
  complain(fmt::format("of {} programs some are gone: {} {}", arguments.size() - before,
                       checked.exit_code, checked.err.substr(0, 2000)));
}

// ---- The end ----

std::vector<std::string> Drill::after_kill() {
  complaints_.clear();
  service_.kill();
  if (!service_.await()) complain("the service does not come back");
  check_stored();
  complain(inspect_house(service_, guests_));
  complain(inspect_blobs(service_, rotten_));
  return complaints_;
}

std::vector<std::string> Drill::after_stop() {
  complaints_.clear();
  if (std::string trouble = service_.stop(); !trouble.empty()) complain(std::move(trouble));
  complain(inspect_end(service_));
  return complaints_;
}

}  // namespace kiln::testing
