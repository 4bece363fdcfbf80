#include "worker/runner/runner_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace kiln {
namespace {

using namespace std::chrono_literals;

constexpr int kRunnerSocket = 3;             // where the child finds its end
constexpr auto kExitPatience = 10s;          // between its last word and its exit status
constexpr int64_t kPrepareQuietMs = 60'000;  // a driver may take its time with its first context

// Only the variables that loaders, drivers, compilers and sanitizers need: the runner runs other
// people's code, and our environment holds what it need not know (such as the file of our key).
std::vector<std::string> runner_environment() {
  constexpr std::string_view kPassed[] = {"PATH=", "HOME=", "TMPDIR=", "LANG=",   "LC_",
                                          "TZ=",   "LD_",   "CUDA_",   "NVIDIA_", "ASAN_",
                                          "LSAN_", "TSAN_", "UBSAN_",  "KILN_"};
  std::vector<std::string> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view word = *variable;
    if (!word.starts_with("KILN_KEY=") &&
        std::ranges::any_of(kPassed, [&](std::string_view name) { return word.starts_with(name); }))
      environment.emplace_back(word);
  }
  return environment;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> command_of(const RunnerProcess::Options& options) {
  std::vector<std::string> words{
      options.executable.string(), "--socket",  std::to_string(kRunnerSocket),  "--parent",
      std::to_string(::getpid()),  "--threads", std::to_string(options.threads)};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  return words;
}

// A process that runs others' code has no way to our log.
Result<pid_t> spawn_confined(const RunnerProcess::Options& options, int socket) {
  Sandbox::Command command{options.kind, command_of(options), runner_environment(),
                           std::filesystem::temp_directory_path()};
  command.words.emplace_back("--confined");
  command.socket = socket;
  return options.sandbox->spawn(command);
}

// Starts the runner. It inherits only stderr and its socket, no blocked signals, and has its own
// process group.
Result<pid_t> spawn(const RunnerProcess::Options& options, int socket) {
  if (options.sandbox != nullptr) return spawn_confined(options, socket);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, socket, kRunnerSocket);
  ::posix_spawnattr_init(&attributes);
  sigset_t none, defaults;
  ::sigemptyset(&none);
  ::sigfillset(&defaults);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(
      &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  const Path& executable = options.executable;
  std::vector<std::string> words = command_of(options);
  std::vector<std::string> environment = runner_environment();
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, executable.c_str(), &actions, &attributes,
                                  pointers(words).data(), pointers(environment).data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    return fail(Code::kNotFound,
                fmt::format("cannot start {}: {}", executable.string(), std::strerror(error)));
  return pid;
}

// Sets the niceness of a process, and of its session where it has its own: a kernel with autogroups shares
// cores between sessions first. False: ask again; the kernel takes one such request in a tenth of a second.
bool make_nice(pid_t pid, int niceness) {
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(pid), niceness);
  if (::getsid(pid) == ::getsid(0)) return true;
  const int file = ::open(fmt::format("/proc/{}/autogroup", pid).c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) return true;
  const std::string text = std::to_string(niceness);
  const bool comes_early = ::write(file, text.data(), text.size()) < 0 && errno == EAGAIN;
  ::close(file);
  return !comes_early;
}

std::string describe_status(int status) {
  // The first process of a namespace cannot die of its own signals, and says them so.
  const bool said = WIFEXITED(status) && WEXITSTATUS(status) > 128;
  if (WIFSIGNALED(status) || said) {
    const int number = said ? WEXITSTATUS(status) - 128 : WTERMSIG(status);
    const char* name = ::sigdescr_np(number);
    return fmt::format("the runner died of signal {} ({})", number, name ? name : "unknown");
  }
  return fmt::format("the runner exited with status {}", WEXITSTATUS(status));
}

}  // namespace

RunnerProcess::~RunnerProcess() {
  reap();
}

Status RunnerProcess::start() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return fail(Code::kUnavailable, std::string("no socket for a runner: ") + std::strerror(errno));
  auto pid = spawn(options_, ends[1]);
  ::close(ends[1]);
  if (!pid) {
    ::close(ends[0]);
    return fail(pid.error());
  }
  {
    const std::lock_guard lock(sending_);
    socket_ = ends[0];
  }
  const std::lock_guard lock(mu_);
  pid_ = *pid;
  if (closed_) ::kill(-pid_, SIGKILL);
  return {};
}

Status RunnerProcess::prepare() {
  if (!options_.prepare) return {};
  const auto request = options_.prepare();
  if (!request) {
    end();
    return fail(Code::kUnavailable, request.error().message);
  }
  auto reply = exchange(*request, kPrepareQuietMs, 0);
  if (!reply) {
    ++device_failures_;
    return fail(ended(reply.error(), kPrepareQuietMs, 0).within("preparing a runner"));
  }
  const auto* failed = std::get_if<runner::Failed>(&*reply);
  if (failed == nullptr) return {};
  ++device_failures_;
  end();
  return fail(Code::kUnavailable, "the runner cannot be prepared: " + failed->error.message);
}

void RunnerProcess::interrupt() {
  const std::lock_guard lock(sending_);
  constexpr int64_t kPatienceMs = 100;
  if (socket_ >= 0)
    (void)runner::send_frame(socket_, runner::encode(runner::CancelCompile{}), kPatienceMs);
}

bool RunnerProcess::is_running() const {
  const pid_t child = pid();
  siginfo_t info{};
  if (child == 0) return false;
  return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == 0;
}

pid_t RunnerProcess::pid() const {
  const std::lock_guard lock(mu_);
  return pid_;
}

void RunnerProcess::kill() {
  const std::lock_guard lock(mu_);
  if (pid_ > 0) ::kill(-pid_, SIGKILL);
}

void RunnerProcess::end() {
  kill();
  reap();
}

void RunnerProcess::close() {
  {
    const std::lock_guard lock(mu_);
    closed_ = true;
  }
  kill();
}

bool RunnerProcess::is_closed() const {
  const std::lock_guard lock(mu_);
  return closed_;
}

std::string RunnerProcess::reap() {
  {
    const std::lock_guard lock(sending_);
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  const std::lock_guard lock(mu_);
  if (pid_ <= 0) return "no runner";
  int status = 0;
  pid_t ended = 0;
  for (auto waited = 0ms; ended == 0 && waited < kExitPatience; waited += 5ms) {
    ended = ::waitpid(pid_, &status, WNOHANG);
    if (ended == 0) std::this_thread::sleep_for(5ms);
  }
  ::kill(-pid_, SIGKILL);  // it, or children it may have left
  if (ended == 0) ::waitpid(pid_, &status, 0);
  pid_ = 0;
  return describe_status(status);
}

// A kernel shares the runner's socket, and may say for ever that it is alive: `most_ms` is ours.
Result<runner::Reply> RunnerProcess::exchange(const runner::Request& request, int64_t quiet_ms,
                                              int64_t most_ms) {
  const auto start = std::chrono::steady_clock::now();
  {
    const std::lock_guard lock(sending_);
    TRY_STATUS(runner::send_frame(socket_, runner::encode(request), quiet_ms));
  }
  for (;;) {
    TRY(const std::string body, runner::receive_frame(socket_, quiet_ms));
    TRY(runner::Reply reply, runner::decode_reply(body));
    if (std::holds_alternative<runner::Leaving>(reply)) {
      leaving_ = true;
    } else if (!std::holds_alternative<runner::Progress>(reply)) {
      return reply;
    } else if (options_.progressed) {
      options_.progressed();
    }
    if (most_ms > 0 && std::chrono::steady_clock::now() - start > most_ms * 1ms)
      return fail(Code::kDeadlineExceeded, "not done in time");
  }
}

Status RunnerProcess::make_ready() {
  if (is_running()) return {};
  reap();  // killed between two calls: nobody's fault
  leaving_ = false;
  is_nice_ = options_.niceness == 0;
  TRY_STATUS(start());
  return prepare();
}

// Ends what is left of the runner after a conversation that failed; what to tell the caller.
Error RunnerProcess::ended(const Error& why, int64_t quiet_ms, int64_t most_ms) {
  if (why.code == Code::kDeadlineExceeded) {
    end();
    return {Code::kDeadlineExceeded,
            most_ms > 0
                ? fmt::format("silent for {} ms or busy for {} ms, killed", quiet_ms, most_ms)
                : fmt::format("silent for {} ms, killed", quiet_ms),
            0};
  }
  if (why.code == Code::kCorruption) {
    end();
    return {Code::kUnavailable, "the runner answered nonsense: " + why.message, 0};
  }
  return {Code::kUnavailable, reap(), 0};
}

Result<runner::Reply> RunnerProcess::call(const runner::Request& request, int64_t quiet_ms,
                                          int64_t most_ms) {
  TRY_STATUS(make_ready());
  if (!is_nice_) is_nice_ = make_nice(pid(), options_.niceness);
  auto reply = exchange(request, quiet_ms, most_ms);
  if (!reply) return fail(ended(reply.error(), quiet_ms, most_ms));
  if (leaving_) end();
  return reply;
}

}  // namespace kiln
