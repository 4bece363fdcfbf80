#include "tests/system/faults/client_ask.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "tests/system/faults/small_program.h"

namespace kiln::testing {
namespace {

using nlohmann::json;

// For people.
std::string line_of(const Path& file) {
  std::string text = read_file(file).value_or("");
  std::ranges::replace(text, '\n', ' ');
  return text.substr(0, 600);
}

}  // namespace

Path programs_of(const LiveService& service) {
  return service.root() / "programs";
}

Path tier_of(const LiveService& service) {
  return service.root() / "tier";
}

ClientAsk::ClientAsk(const LiveService& service, std::string name, Key key, bool tier, bool queued)
    : name_(std::move(name)), key_(key), tier_(tier), queued_(queued) {
  out_ = err_ = service.root() / "asks" / name_;
  out_ += ".out";
  err_ += ".err";
  std::filesystem::create_directories(out_.parent_path());
  std::filesystem::create_directories(programs_of(service));
  std::filesystem::remove(err_);
}

void ClientAsk::start(const LiveService& service, std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--json", "--deadline", std::to_string(kDeadlineS), "--mode",
                                     key_.tuned ? "max-autotune" : "default"});
  child_ = service.start_client(std::move(arguments), out_, err_);
}

ClientAsk ClientAsk::run(const LiveService& service, std::string name, Key key, bool tier) {
  ClientAsk ask(service, std::move(name), key, tier, false);
  const SmallProgram program = small_program(programs_of(service), key.program);
  std::vector<std::string> arguments = {"run",       program.graph.string(),
                                        "--expect",  program.answer.string(),
                                        "--runs",    "1",
                                        "--threads", "1",
                                        "--verify",  "--no-fallback"};  // what is stored
  if (tier) arguments.insert(arguments.end(), {"--cache-dir", tier_of(service).string()});
  ask.start(service, std::move(arguments));
  return ask;
}

ClientAsk ClientAsk::queue(const LiveService& service, std::string name, Key key) {
  ClientAsk ask(service, std::move(name), key, false, true);
  const SmallProgram program = small_program(programs_of(service), key.program);
  ask.start(service, {"warm", program.graph.string(), "--detach"});
  return ask;
}

bool ClientAsk::running(double now_s) {
  if (child_.pid() < 0) return false;
  if (child_.running()) return true;
  seconds_ = now_s;
  return false;
}

void ClientAsk::finish() {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto waited_s = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  while (running(waited_s()) && waited_s() < kPatienceS)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  if (child_.pid() < 0) return;
  child_.signal(SIGKILL);
  child_.wait();
  seconds_ = waited_s();
}

json ClientAsk::answer() const {
  json value = json::parse(read_file(out_).value_or(""), nullptr, false);
  return value.is_object() ? value : json::object();
}

std::string ClientAsk::error() const {
  return line_of(err_);
}

std::string ClientAsk::told() const {
  return fmt::format("client '{}' (program {}{}{}) ended with {} after {:.1f} s: {} {}", name_,
                     key_.program, key_.tuned ? ", tuned" : "", tier_ ? ", tier" : "", exit_code(),
                     seconds_, line_of(out_), line_of(err_));
}

}  // namespace kiln::testing
