#include "tests/system/faults/live_service.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "compiler_core/base/check.h"
#include "compiler_core/base/file.h"
#include "tests/support/loopback.h"

namespace kiln::testing {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> environment_of(const Path& root, const FaultControl& faults) {
  std::vector<std::string> environment = faults.environment();
  environment.push_back("TMPDIR=" + (root / "tmp").string());
  environment.push_back("XDG_RUNTIME_DIR=" + (root / "run").string());
  // Faults reach compilers and runners through a preloaded library and a file that it maps, which a
  // sandbox keeps out.
  environment.push_back("KILN_SANDBOX=off");
  return environment;
}

}  // namespace

LiveService::LiveService(Options options, const FaultControl& faults)
    : options_(std::move(options)), environment_(environment_of(options_.root, faults)) {
  for (const char* name : {"tmp", "run", "objects"})
    std::filesystem::create_directories(options_.root / name);
  if (options_.unread_logs) fill_logs();
  const int port = free_port();  // kept over the coordinator's restarts
  direct_ = endpoint_ = fmt::format("tcp://127.0.0.1:{}", port);
  if (options_.proxied) {
    proxy_ = std::make_unique<TcpProxy>(port);
    endpoint_ = fmt::format("tcp://127.0.0.1:{}", proxy_->port());
  }
  if (options_.keyed) {
    make_keys();
    for (int n = 0; n <= options_.workers; ++n)
      http_.push_back(fmt::format("127.0.0.1:{}", free_port()));
  }
  start_coordinator();
  for (int n = 0; n < options_.workers; ++n) {
    workers_.push_back(Child::none());
    start_worker(static_cast<size_t>(n));
  }
}

LiveService::~LiveService() {
  wake();
  for (Child& worker : workers_) worker.signal(SIGKILL);
  coordinator_.signal(SIGKILL);
  for (const int fd : unread_) ::close(fd);
}

void LiveService::fill_logs() {
  std::vector<std::string> writers = {"coordinator"};
  for (int n = 0; n < options_.workers; ++n) writers.push_back(fmt::format("worker{}", n));
  for (const std::string& writer : writers) {
    const Path pipe = log(writer);
    CHECK(::mkfifo(pipe.c_str(), 0600) == 0, "the test's own directory");
    unread_.push_back(::open(pipe.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    const std::string line(4096, '.');
    while (::write(unread_.back(), line.data(), line.size()) > 0) {
    }
  }
}

// In a folder of their own: keys in the data directory would name the key that artifacts are signed
// with, which some faults make the coordinator lose.
void LiveService::make_keys() const {
  for (const char* role : {"worker", "submit", "read"}) {
    const Finished made =
        run({binary("kiln"), "keys", "new", role, "--role", role, "--data-dir", data().string(),
             "--keys", (options_.root / "keys").string(), "--out", key_file(role)});
    CHECK(made.exit_code == 0, "the test's own directory");
  }
}

std::string LiveService::key_file(const char* role) const {
  return options_.keyed ? (options_.root / (std::string(role) + ".key")).string() : "";
}

std::string LiveService::http_of(size_t process) const {
  return options_.keyed ? http_[process] : "none";
}

void LiveService::start_coordinator() {
  std::vector<std::string> arguments = {binary("kiln-coordinator"),
                                        "--data-dir",
                                        data().string(),
                                        "--listen",
                                        direct_,
                                        "--http",
                                        http_of(0)};
  if (options_.keyed)
    arguments.insert(arguments.end(), {"--keys", (options_.root / "keys").string()});
  arguments.insert(arguments.end(), options_.coordinator_flags.begin(),
                   options_.coordinator_flags.end());
  coordinator_ = Child::start(arguments, options_.root / "ready", log("coordinator"), environment_);
}

void LiveService::start_worker(size_t n) {
  std::vector<std::string> arguments = {
      binary("kiln-worker"), "--coordinator", endpoint_,     "--name",
      fmt::format("w{}", n), "--threads",     "1",           "--cache-dir",
      objects().string(),    "--http",        http_of(n + 1)};
  if (options_.keyed) arguments.insert(arguments.end(), {"--key", key_file("worker")});
  if (n >= static_cast<size_t>(options_.workers))
    arguments.insert(arguments.end(),
                     {"--device-lock", (options_.root / "run" / "elsewhere").string()});
  workers_[n] = Child::start(arguments, "/dev/null", log(fmt::format("worker{}", n)), environment_);
}

void LiveService::add_worker() {
  workers_.push_back(Child::none());
  start_worker(workers_.size() - 1);
}

void LiveService::tend() {
  if (!coordinator_.running()) {
    start_coordinator();
    ++restarts_;
  }
  for (size_t n = 0; n < workers_.size(); ++n) {
    if (workers_[n].running()) continue;
    start_worker(n);
    ++restarts_;
  }
}

bool LiveService::await(int timeout_s) {
  const auto deadline = Clock::now() + std::chrono::seconds(timeout_s);
  while (Clock::now() < deadline) {
    tend();
    const auto stats = run_client({"stats", "--json"}, 5).json();
    if (stats.is_object() && stats.contains("workers") &&
        stats["workers"].size() == workers_.size())
      return true;
    pause_ms(20);
  }
  return false;
}

std::vector<pid_t> LiveService::runners() const {
  return descendants(::getpid(), "kiln-runner");
}

std::vector<pid_t> LiveService::compilers() const {
  std::vector<pid_t> found;
  for (const char* pass : {"cc1plus", "as", "ld", "collect2"})
    for (const pid_t pid : descendants(::getpid(), pass)) found.push_back(pid);
  return found;
}

void LiveService::wake() {
  coordinator_.signal(SIGCONT);
  for (Child& worker : workers_) worker.signal(SIGCONT);
  for (const pid_t runner : runners()) ::kill(runner, SIGCONT);
  for (const pid_t pass : compilers()) ::kill(pass, SIGCONT);
}

void LiveService::kill() {
  coordinator_.signal(SIGKILL);
  for (Child& worker : workers_) worker.signal(SIGKILL);
  coordinator_.wait();
  for (Child& worker : workers_) worker.wait();
}

std::string LiveService::stop() {
  std::string trouble;
  const auto end = [&](Child& child, const std::string& name) {
    child.signal(SIGTERM);
    const auto deadline = Clock::now() + std::chrono::seconds(60);
    while (child.running() && Clock::now() < deadline) pause_ms(10);
    if (child.running()) {
      trouble += name + " does not end at SIGTERM; ";
      child.signal(SIGKILL);
      child.wait();
    } else if (child.exit_code() != 0) {
      trouble += fmt::format("{} ended with {}; ", name, child.exit_code());
    }
  };
  for (size_t n = 0; n < workers_.size(); ++n) end(workers_[n], fmt::format("worker {}", n));
  end(coordinator_, "the coordinator");
  return trouble;
}

std::vector<std::string> LiveService::client_environment(const char* role) const {
  std::vector<std::string> environment = environment_;
  environment.push_back("KILN_COORDINATOR=" + endpoint_);
  if (options_.keyed) environment.push_back("KILN_KEY=" + key_file(role));
  return environment;
}

Child LiveService::start_client(std::vector<std::string> arguments, const Path& out,
                                const Path& err) const {
  arguments.insert(arguments.begin(), binary("kiln"));
  return Child::start(arguments, out, err, client_environment("submit"));
}

Finished LiveService::run_client(std::vector<std::string> arguments, int timeout_s) const {
  arguments.insert(arguments.begin(), binary("kiln"));
  return run(arguments, client_environment("read"), timeout_s);
}

}  // namespace kiln::testing
