#include "tests/system/faults/drill.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "compiler_core/base/digest.h"

namespace kiln::testing {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr int kDeadlineS = 30, kPatienceS = 40, kForgottenS = 15;
constexpr int kMaxDescriptors = 200;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void pause_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

// For people.
std::string text_of(const Path& file) {
  std::string text = read_file(file).value_or("");
  std::ranges::replace(text, '\n', ' ');
  return text.substr(0, 600);
}

json json_of(const Path& file) {
  const json value = json::parse(read_file(file).value_or(""), nullptr, false);
  return value.is_object() ? value : json::object();
}

int descriptors(pid_t pid) {
  std::error_code error;
  const auto all =
      std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error);
  return error ? 0 : static_cast<int>(std::distance(begin(all), end(all)));
}

// Files below `directory` that somebody should have removed.
std::vector<std::string> half_written(const Path& directory) {
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error))
    if (at->path().filename().string().find(".tmp.") != std::string::npos)
      found.push_back(at->path().string());
  return found;
}

// Blobs whose name is not the digest of what is in them.
std::vector<std::string> bad_blobs(const Path& blobs) {
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator at(blobs, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename();
    if (!at->is_regular_file() || name.size() != 64 ||
        at->path().parent_path().filename() == "quarantine")
      continue;
    const auto bytes = read_file(at->path());
    if (bytes && Digest::of(*bytes).hex() != name) found.push_back(at->path().string());
  }
  return found;
}

// Flips a bit of the `n`-th stored blob; which file that was.
Path rot(const Path& blobs, uint64_t n) {
  std::vector<Path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(blobs))
    if (entry.is_regular_file() && entry.path().filename().string().size() == 64)
      files.push_back(entry.path());
  if (files.empty()) return {};
  const Path& file = files[n % files.size()];
  std::string bytes = read_file(file).value_or("");
  if (bytes.empty()) return {};
  bytes[n / 7 % bytes.size()] ^= 1;
  (void)write_file(file, bytes);
  return file;
}

constexpr const char* kFiller = "filler";

void fill(const Path& directory) {
  const int fd = ::open((directory / kFiller).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const std::string block(4096, 'x');
  while (::write(fd, block.data(), block.size()) > 0) {
  }
  ::close(fd);
}

}  // namespace

Drill::Drill(LiveService& service, FaultControl& faults, uint64_t seed)
    : service_(service), faults_(faults), random_(seed), programs_(service.root() / "programs") {
  std::filesystem::create_directories(programs_);
  std::filesystem::create_directories(service_.root() / "asks");
}

void Drill::complain(std::string what) {
  complaints_.push_back(std::move(what));
}

Drill::Key Drill::new_key(bool tuned) {
  if (max_programs_ > 0 && next_program_ >= max_programs_)
    return {static_cast<int>(random_() % static_cast<uint64_t>(max_programs_)), tuned};
  return {next_program_++, tuned};
}

Drill::Ask Drill::ask(std::string name, Key key, bool tier) {
  const SmallProgram program = small_program(programs_, key.program);
  const Path stem = service_.root() / "asks" / name;
  Path out = stem, err = stem;
  out += ".out";
  err += ".err";
  std::filesystem::remove(err);
  std::vector<std::string> arguments = {"run",           program.graph.string(),
                                        "--expect",      program.answer.string(),
                                        "--runs",        "1",
                                        "--threads",     "1",
                                        "--no-fallback", "--json",
                                        "--deadline",    std::to_string(kDeadlineS),
                                        "--mode",        key.tuned ? "max-autotune" : "default"};
  if (tier) arguments.insert(arguments.end(), {"--cache-dir", (service_.root() / "tier").string()});
  Child child = service_.start_client(arguments, out, err);
  return {std::move(name), key, tier, std::move(out), std::move(err), std::move(child), 0};
}

// A search takes longer than the rest together: always where it matters, now and then elsewhere.
bool Drill::wants_a_search(const Trouble& trouble) {
  const std::string_view program =
      trouble.at_point ? kFaultPoints[static_cast<size_t>(trouble.fault.point)].program : "";
  return program == "kiln-worker" || program == "kiln-runner" || random_() % 4 == 0;
}

// Something new, the same again, what was asked for before with and without a tier, and a search
// whose first candidate a worker has compiled already.
std::vector<Drill::Ask> Drill::begin(const Trouble& trouble) {
  std::vector<Ask> asks;
  const Key fresh = new_key(false);
  asks.push_back(ask("new", fresh, true));
  asks.push_back(ask("joins", fresh, false));
  const auto is_untuned = [this](const Key& key) {
    return !key.tuned && !answered_.contains({key.program, true});
  };
  const auto any_of = [this](const std::set<Key>& keys) {
    return *std::next(keys.begin(), static_cast<int64_t>(random_() % keys.size()));
  };
  if (!answered_.empty()) asks.push_back(ask("old", any_of(answered_), false));
  if (!kept_.empty()) asks.push_back(ask("kept", any_of(kept_), true));
  const auto untuned = std::find_if(answered_.rbegin(), answered_.rend(), is_untuned);
  if (untuned != answered_.rend() && wants_a_search(trouble))
    asks.push_back(ask("tuned", {untuned->program, true}, false));
  return asks;
}

void Drill::strike(const Trouble& trouble, std::vector<Ask>& asks) {
  const auto send = [&](Victim victim, int signal) {
    if (victim == Victim::kCoordinator) service_.coordinator().signal(signal);
    if (victim == Victim::kWorker) service_.worker(0).signal(signal);
    if (victim == Victim::kRunner)
      for (const pid_t runner : service_.runners()) ::kill(runner, signal);
    if (victim == Victim::kCompiler)
      for (const pid_t pass : service_.compilers()) ::kill(pass, signal);
    if (victim != Victim::kClient) return;
    asks.front().child.signal(signal);
  };
  send(trouble.killed, SIGKILL);
  send(trouble.stopped, SIGSTOP);
  if (!trouble.fills.empty()) fill(trouble.fills);
  if (trouble.rots) rotten_.insert(rot(service_.data() / "blobs", random_()));
  if (service_.proxy() != nullptr) {
    if (trouble.drops) service_.proxy()->drop();
    service_.proxy()->set(trouble.cut);
  }
}

void Drill::mend(const Trouble& trouble, std::vector<Ask>& asks) {
  if (service_.proxy() != nullptr) service_.proxy()->set(TcpProxy::Mode::kForward);
  faults_.disarm();
  if (!trouble.fills.empty()) {
    std::error_code ignored;
    std::filesystem::remove(Path(trouble.fills) / kFiller, ignored);
  }
  if (trouble.stopped == Victim::kNobody && trouble.fault.action != FaultAction::kStop) return;
  service_.wake();
  for (Ask& ask : asks) ask.child.signal(SIGCONT);
}

// A moment's trouble is mended when its time is over, a stop at a point some time after it came,
// and what else waits at a point when everybody has an answer.
void Drill::wait_for(std::vector<Ask>& asks, const Trouble& trouble) {
  const auto start = Clock::now();
  bool struck = false, mended = false;
  std::vector<bool> ended(asks.size(), false);
  const bool stops = trouble.at_point && trouble.fault.action == FaultAction::kStop;
  double mend_s = (trouble.after_ms + trouble.for_ms) / 1000.0;
  if (trouble.at_point || !trouble.fills.empty()) mend_s = kPatienceS;
  while (std::ranges::find(ended, false) != ended.end() || !struck) {
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
    for (size_t i = 0; i < asks.size(); ++i) {
      if (ended[i] || asks[i].child.running()) continue;
      ended[i] = true;
      asks[i].seconds = now_s;
    }
    if (now_s > kPatienceS) break;
    pause_ms(2);
  }
  mend(trouble, asks);
}

void Drill::judge(const Ask& ask, const Trouble& trouble) {
  const int code = ask.child.exit_code();
  tally_.longest_s = std::max(tally_.longest_s, ask.seconds);
  const json answer = json_of(ask.out);
  const std::string told =
      fmt::format("client '{}' (program {}{}{}) ended with {} after {:.1f} s: {} {}", ask.name,
                  ask.key.program, ask.key.tuned ? ", tuned" : "", ask.tier ? ", tier" : "", code,
                  ask.seconds, text_of(ask.out), text_of(ask.err));
  if (code == 0) {
    ++tally_.answers;
    if (answer.value("cache", "") == "hit") ++tally_.hits;
    if (!trouble.hurts_the_store()) answered_.insert(ask.key);
    if (ask.tier) kept_.insert(ask.key);
    swept_ = swept_ || ask.name == "new";
  } else if (code == 128 + SIGKILL) {
    ++tally_.killed;
    const bool by_us =
        trouble.killed == Victim::kClient ||
        (trouble.at_point &&
         std::string_view(kFaultPoints[static_cast<size_t>(trouble.fault.point)].program) ==
             "kiln");
    if (!by_us) complain("killed by nobody: " + told);
  } else if (code == 3 || code == 5) {
    ++tally_.errors;
    if (text_of(ask.err).empty()) complain("an error without a word: " + told);
  } else if (code == 1 && answer.contains("ok")) {
    ++tally_.wrong;
    complain("wrong: " + told);
  } else {
    complain("not an answer: " + told);
  }
}

// A failure of the fleet's is remembered for some seconds, with its age: who asks meanwhile hears
// so.
Drill::Ask Drill::insist(const Key& key) {
  const auto start = Clock::now();
  for (;;) {
    Ask again = ask("again", key, false);
    const auto asked = Clock::now();
    while (again.child.running() && seconds_since(asked) < kPatienceS) pause_ms(2);
    again.seconds = seconds_since(asked);
    if (again.child.running()) {
      again.child.signal(SIGKILL);
      again.child.wait();
    }
    const int code = again.child.exit_code();
    if ((code != 3 && code != 5) || seconds_since(start) > kForgottenS) return again;
    pause_ms(500);
  }
}

void Drill::ask_again(const std::vector<Ask>& asks) {
  std::set<Key> keys;
  for (const Ask& ask : asks) keys.insert(ask.key);
  for (const Key& key : keys) {
    const Ask again = insist(key);
    const json answer = json_of(again.out);
    const std::string told =
        fmt::format("after all is mended, program {}{} ends with {} after {:.1f} s: {} {}",
                    key.program, key.tuned ? ", tuned" : "", again.child.exit_code(), again.seconds,
                    text_of(again.out), text_of(again.err));
    if (again.child.exit_code() != 0) {
      ++tally_.unanswered;
      complain(told);
      continue;
    }
    ++tally_.answers;
    if (!evicts_ && answered_.contains(key) && answer.value("cache", "") != "hit") {
      ++tally_.lost;
      complain("lost, though it was answered: " + told);
    }
    answered_.insert(key);
  }
}

// Ends give their files back at once, but the last of a process may take a moment.
void Drill::check_house() {
  std::vector<std::string> found;
  for (int tries = 0; tries < 250; ++tries) {
    found.clear();
    for (const Path& place : {service_.data() / "blobs", service_.objects()})
      for (std::string& file : half_written(place)) found.push_back("left behind: " + file);
    size_t scratches = 0;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(service_.temp(), error)) {
      if (entry.path().filename().string().starts_with("kiln-worker-"))
        ++scratches;
      else
        found.push_back("left behind: " + entry.path().string());
    }
    if (scratches > service_.workers())
      found.push_back(
          fmt::format("{} scratch directories of {} workers", scratches, service_.workers()));
    for (const std::string& process : living_descendants())
      if (!process.starts_with("kiln")) found.push_back("still running: " + process);
    if (found.empty()) break;
    pause_ms(20);
  }
  for (std::string& what : found) complain(std::move(what));
  for (size_t n = 0; n <= service_.workers(); ++n) {
    Child& child = n == 0 ? service_.coordinator() : service_.worker(n - 1);
    if (const int open = descriptors(child.pid()); open > kMaxDescriptors)
      complain(
          fmt::format("{} holds {} descriptors", n == 0 ? "the coordinator" : "a worker", open));
  }
}

// By SIGTERM, with the fault armed.
void Drill::restart(const Trouble& trouble) {
  const std::string_view program = kFaultPoints[static_cast<size_t>(trouble.fault.point)].program;
  Child& child = program == "kiln-worker" ? service_.worker(0) : service_.coordinator();
  child.signal(SIGTERM);
  const auto start = Clock::now();
  while (child.running() && seconds_since(start) < 15) pause_ms(2);
  if (child.running()) complain(fmt::format("{} does not end at SIGTERM", program));
  service_.tend();
}

// What was answered while the disk took nothing may be in memory only. Without it, what was
// answered before must still be a hit; the rest is tuned once more, and counts from then on.
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
    const Ask again = insist(key);
    if (again.child.exit_code() == 0)
      answered_.insert(key);
    else
      complain(fmt::format("program {} is not tuned again: {}", key.program, text_of(again.err)));
  }
}

// A blob that we damaged may lie there until somebody reads it.
void Drill::check_blobs() {
  for (const std::string& blob : bad_blobs(service_.data() / "blobs"))
    if (!rotten_.contains(blob)) complain("not what its name says: " + blob);
}

// What a killed client left in its tier goes when another one next puts something there.
void Drill::check_tier() {
  const std::vector<std::string> now = half_written(service_.root() / "tier");
  for (const std::string& file : now)
    if (swept_ && std::ranges::find(tier_left_, file) != tier_left_.end())
      complain("left behind: " + file);
  tier_left_ = now;
}

std::vector<std::string> Drill::round(const Trouble& trouble) {
  complaints_.clear();
  swept_ = false;
  ++tally_.rounds;
  if (trouble.at_point) faults_.arm(trouble.fault);
  if (trouble.restarts) restart(trouble);
  std::vector<Ask> asks = begin(trouble);
  wait_for(asks, trouble);
  if (faults_.struck() > 0) ++tally_.struck;
  for (Ask& ask : asks) {
    if (!ask.child.running()) {
      judge(ask, trouble);
      continue;
    }
    ++tally_.unanswered;
    complain(fmt::format("client '{}' has no answer after {} s", ask.name, kPatienceS));
  }
  if (!service_.await()) complain("the service does not come back");
  if (trouble.loses_blobs())
    heal();
  else if (trouble.hurts_the_store())
    settle();
  ask_again(asks);
  check_house();
  check_tier();
  check_blobs();
  return complaints_;
}

void Drill::check_stored(const std::set<Key>& keys) {
  for (const bool tuned : {false, true}) {
    std::vector<std::string> arguments = {"compile", "--check", "--json", "--mode",
                                          tuned ? "max-autotune" : "default"};
    const size_t before = arguments.size();
    for (const Key& key : keys)
      if (key.tuned == tuned)
        arguments.push_back(small_program(programs_, key.program).graph.string());
    if (arguments.size() == before) continue;
    const Finished checked = service_.run_client(arguments, 120);
    if (checked.exit_code == 0) continue;
    ++tally_.lost;
    complain(fmt::format("of {} programs some are gone: {} {}", arguments.size() - before,
                         checked.exit_code, checked.err.substr(0, 2000)));
  }
}

std::vector<std::string> Drill::after_kill() {
  complaints_.clear();
  service_.kill();
  if (!service_.await()) complain("the service does not come back");
  if (!evicts_) check_stored(answered_);
  check_house();
  check_blobs();
  return complaints_;
}

std::vector<std::string> Drill::after_stop() {
  complaints_.clear();
  if (const std::string trouble = service_.stop(); !trouble.empty()) complain(trouble);
  std::vector<std::string> left;
  for (int tries = 0; tries < 100; ++tries) {
    left = living_descendants();
    if (left.empty()) break;
    pause_ms(20);
  }
  for (const std::string& process : left) complain("still running: " + process);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(service_.temp(), error))
    complain("left behind: " + entry.path().string());
  return complaints_;
}

}  // namespace kiln::testing
