// `kiln up`: a coordinator and workers for this machine's CPU and GPUs, in the foreground. The
// children are separate programs; this one starts them, restarts a worker that dies, and takes them
// all down with it, also when it is killed (they ask the kernel for a signal, PR_SET_PDEATHSIG).
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <thread>

#include "client/cli/child_program.h"
#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "client/remote.h"
#include "schema/zmq/transport.h"

namespace kiln::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kReadyTimeout{30};
constexpr std::chrono::seconds kStopTimeout{10};
constexpr std::chrono::milliseconds kRestartPause{500};  // so that a worker that cannot start
                                                         // does not spin

// Reads the coordinator's stdout until its ready line; the endpoint.
Result<std::string> await_ready(int fd, pid_t pid) {
  std::string text;
  const auto deadline = Clock::now() + kReadyTimeout;
  while (Clock::now() < deadline) {
    pollfd poll_fd{fd, POLLIN, 0};
    if (::poll(&poll_fd, 1, 100) > 0) {
      std::array<char, 512> chunk;
      const ssize_t n = ::read(fd, chunk.data(), chunk.size());
      if (n <= 0) break;
      text.append(chunk.data(), static_cast<size_t>(n));
    }
    const size_t ready = text.find("ready ");
    const size_t end = ready == std::string::npos ? ready : text.find('\n', ready);
    if (end != std::string::npos) return text.substr(ready + 6, end - ready - 6);
  }
  ::kill(pid, SIGKILL);
  return fail(Code::kInvalidArgument, "the coordinator did not start; its message stands above");
}

// The GPUs of this machine, as kiln-worker names them: "cuda:0", ... It is asked in a process of
// its own, which opens them and ends. None when it cannot say.
std::vector<std::string> find_gpus(const std::string& libcuda) {
  std::vector<std::string> arguments = {beside_this_program("kiln-worker").string(),
                                        "--list-devices"};
  if (!libcuda.empty()) arguments.insert(arguments.end(), {"--libcuda", libcuda});
  const auto listed = run_program(arguments, kReadyTimeout);
  std::vector<std::string> gpus;
  if (!listed || listed->exit_code != 0) return gpus;
  std::istringstream lines(listed->output);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("cuda:")) gpus.push_back(line.substr(0, line.find(' ')));
  return gpus;
}

struct LocalWorker {
  std::string device, name;
  pid_t pid = -1;
};

std::vector<LocalWorker> planned_workers(const Options& options) {
  std::vector<std::string> devices = options.devices;
  if (devices.empty()) {
    devices = find_gpus(options.libcuda);
    devices.insert(devices.begin(), "cpu");
  }
  std::vector<LocalWorker> workers;
  for (const std::string& device : devices) {
    if (device != "cpu") workers.push_back({device, "local-" + device});
    for (int i = 0; device == "cpu" && i < options.workers; ++i)
      workers.push_back({device, fmt::format("local-{}", i)});
  }
  return workers;
}

class Household {
 public:
  explicit Household(const Options& options) : options_(options) {}

  Status start() {
    block_signals();
    TRY_STATUS(start_coordinator());
    workers_ = planned_workers(options_);
    for (LocalWorker& worker : workers_) TRY_STATUS(start_worker(worker));
    return await_workers();
  }

  const std::string& endpoint() const { return endpoint_; }

  // Until a signal asks to stop (kDone) or the coordinator dies.
  int watch() {
    for (;;) {
      pollfd poll_fd{signals_, POLLIN, 0};
      ::poll(&poll_fd, 1, 1000);
      signalfd_siginfo info;
      while (::read(signals_, &info, sizeof info) == sizeof info)
        if (info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM) return kDone;
      if (!reap()) return kAnswerIsNo;
    }
  }

  void stop() {
    for (const LocalWorker& worker : workers_) end(worker.pid, SIGINT);
    for (LocalWorker& worker : workers_) wait_for(worker.pid);
    end(coordinator_, SIGTERM);
    wait_for(coordinator_);
  }

 private:
  void block_signals() {
    sigset_t set;
    ::sigemptyset(&set);
    for (int signal : {SIGINT, SIGTERM, SIGCHLD}) ::sigaddset(&set, signal);
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    signals_ = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  }

  Status start_coordinator() {
    std::array<int, 2> pipe_fds;
    if (::pipe2(pipe_fds.data(), O_CLOEXEC) != 0)
      return fail(Code::kUnavailable, std::string("cannot make a pipe: ") + std::strerror(errno));
    std::vector<std::string> arguments = {beside_this_program("kiln-coordinator").string(),
                                          "--data-dir", options_.data_dir, "--listen",
                                          options_.listen};
    if (!options_.http.empty()) arguments.insert(arguments.end(), {"--http", options_.http});
    const auto pid = spawn(arguments, pipe_fds[1], -1, SIGKILL);
    ::close(pipe_fds[1]);
    if (!pid) return fail(pid.error());
    coordinator_ = *pid;
    auto ready = await_ready(pipe_fds[0], coordinator_);
    ::close(pipe_fds[0]);
    if (!ready) return fail(std::move(ready).error());
    endpoint_ = *std::move(ready);
    return {};
  }

  Status start_worker(LocalWorker& worker) {
    std::vector<std::string> arguments = {beside_this_program("kiln-worker").string(),
                                          "--coordinator",
                                          endpoint_,
                                          "--name",
                                          worker.name,
                                          "--device",
                                          worker.device,
                                          "--cache-dir",
                                          (Path(options_.data_dir) / "worker").string()};
    const auto add = [&](const char* flag, const std::string& value) {
      if (!value.empty()) arguments.insert(arguments.end(), {flag, value});
    };
    add("--key", key());
    if (options_.threads > 0) add("--threads", std::to_string(options_.threads));
    if (worker.device != "cpu") add("--libcuda", options_.libcuda);
    if (worker.device != "cpu") add("--libnvrtc", options_.libnvrtc);
    if (worker.device != "cpu") add("--libcublaslt", options_.libcublaslt);
    if (options_.no_libraries) arguments.emplace_back("--no-libraries");
    TRY(worker.pid, spawn(arguments, STDERR_FILENO, -1, SIGINT));
    return {};
  }

  // The service serves once its workers have reported.
  Status await_workers() {
    Remote remote(endpoint_, std::chrono::milliseconds(2000));
    remote.use_key(key());
    const auto deadline = Clock::now() + kReadyTimeout;
    while (Clock::now() < deadline) {
      const auto stats = remote.stats(Clock::now() + std::chrono::seconds(2));
      if (stats && stats->workers.size() >= workers_.size()) return {};
      for (LocalWorker& worker : workers_)
        if (::waitpid(worker.pid, nullptr, WNOHANG) == worker.pid) {
          worker.pid = -1;
          return fail(Code::kUnavailable, "the worker for " + worker.device +
                                              " did not start; its message stands above");
        }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return fail(Code::kUnavailable, "the workers did not report; their messages stand above");
  }

  // Restarts workers that ended. False when the coordinator did.
  bool reap() {
    int status = 0;
    for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid == coordinator_) {
        coordinator_ = -1;
        print_error("", {Code::kInternal,
                         "the coordinator ended; what it stored is in " + options_.data_dir +
                             ", start `kiln up` again",
                         0});
        return false;
      }
      const auto at = std::ranges::find(workers_, pid, &LocalWorker::pid);
      if (at == workers_.end()) continue;
      at->pid = -1;
      std::fputs("kiln: a worker ended; starting it again\n", stderr);
      std::this_thread::sleep_for(kRestartPause);
      if (auto started = start_worker(*at); !started) print_error("", started.error());
    }
    return true;
  }

  // The key of the workers started here. KILN_KEY may be for another service: a coordinator on
  // loopback takes none.
  std::string key() const {
    const auto parsed = parse_endpoint(options_.listen);
    return parsed && !parsed->loopback ? options_.key : "";
  }

  static void end(pid_t pid, int signal) {
    if (pid > 0) ::kill(pid, signal);
  }

  static void wait_for(pid_t& pid) {
    if (pid <= 0) return;
    const auto deadline = Clock::now() + kStopTimeout;
    while (::waitpid(pid, nullptr, WNOHANG) == 0) {
      if (Clock::now() > deadline) ::kill(pid, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    pid = -1;
  }

  const Options& options_;
  std::string endpoint_;
  pid_t coordinator_ = -1;
  std::vector<LocalWorker> workers_;
  int signals_ = -1;
};

}  // namespace

int up_command(const Options& options) {
  Household household(options);
  if (const auto started = household.start(); !started) {
    print_error("", started.error());
    household.stop();
    return kBadInput;
  }
  std::printf("ready %s\n", household.endpoint().c_str());
  std::fflush(stdout);
  const int code = household.watch();
  household.stop();
  return code;
}

}  // namespace kiln::cli
