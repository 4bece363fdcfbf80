#include "tests/support/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "compiler_core/base/check.h"
#include "compiler_core/base/file.h"

namespace kiln::testing {
namespace {

using Clock = std::chrono::steady_clock;

int code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// This process's environment with `more` in place of what has the same names, and without what
// would lead to a service or a cache of the person who runs the tests.
std::vector<std::string> environment_with(const std::vector<std::string>& more) {
  std::vector<std::string> environment = more;
  const auto name_of = [](std::string_view pair) { return pair.substr(0, pair.find('=')); };
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view name = name_of(*at);
    const bool hidden =
        name == "KILN_COORDINATOR" || name == "KILN_CACHE_DIR" || name == "KILN_KEY";
    const bool replaced =
        std::ranges::any_of(more, [&](const auto& pair) { return name_of(pair) == name; });
    if (!hidden && !replaced) environment.emplace_back(*at);
  }
  return environment;
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& string : strings) result.push_back(const_cast<char*>(string.c_str()));
  result.push_back(nullptr);
  return result;
}

// Nothing between fork and exec that another thread's lock could stop.
pid_t spawn(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
            int out, int err) {
  const std::vector<std::string> whole = environment_with(environment);
  const std::vector<char*> argv = pointers(arguments), envp = pointers(whole);
  const pid_t pid = ::fork();
  CHECK(pid >= 0, "fork");
  if (pid > 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  ::execve(argv[0], argv.data(), envp.data());
  ::_exit(127);
}

struct Pipe {
  int read_end, write_end;
};

Pipe make_pipe() {
  std::array<int, 2> ends;
  CHECK(::pipe2(ends.data(), O_CLOEXEC) == 0, "pipe");
  return {ends[0], ends[1]};
}

struct ProcessState {
  char letter = 'X';  // as in /proc/PID/stat; X: there is no such process
  pid_t parent = 0;
};

ProcessState state_of(pid_t pid) {
  const std::string text = read_file("/proc/" + std::to_string(pid) + "/stat").value_or("");
  const size_t close = text.rfind(')');
  ProcessState state;
  if (close != std::string::npos)
    std::sscanf(text.c_str() + close + 1, " %c %d", &state.letter, &state.parent);
  return state;
}

}  // namespace

void pause_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

nlohmann::json Finished::json() const {
  return nlohmann::json::parse(out, nullptr, false);
}

Finished run(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
             int timeout_s) {
  const Pipe out = make_pipe(), err = make_pipe();
  const pid_t pid = spawn(arguments, environment, out.write_end, err.write_end);
  ::close(out.write_end);
  ::close(err.write_end);
  Finished result;
  const auto deadline = Clock::now() + std::chrono::seconds(timeout_s);
  std::array<pollfd, 2> fds = {pollfd{out.read_end, POLLIN, 0}, pollfd{err.read_end, POLLIN, 0}};
  std::array<std::string*, 2> texts = {&result.out, &result.err};
  for (int open = 2; open > 0;) {
    ::poll(fds.data(), fds.size(), 100);
    for (size_t i = 0; i < fds.size(); ++i) {
      if (fds[i].fd < 0 || (fds[i].revents & (POLLIN | POLLHUP)) == 0) continue;
      std::array<char, 4096> chunk;
      const ssize_t n = ::read(fds[i].fd, chunk.data(), chunk.size());
      if (n > 0) {
        texts[i]->append(chunk.data(), static_cast<size_t>(n));
      } else {
        ::close(fds[i].fd);
        fds[i].fd = -1;
        --open;
      }
    }
    if (Clock::now() > deadline) ::kill(pid, SIGKILL);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  result.exit_code = code_of(status);
  return result;
}

Finished ask(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
             int timeout_s) {
  const auto deadline = Clock::now() + std::chrono::minutes(1);
  for (;;) {
    Finished done = run(arguments, environment, timeout_s);
    if (done.err.find("no coordinator answers at") == std::string::npos || Clock::now() > deadline)
      return done;
  }
}

Child Child::start(const std::vector<std::string>& arguments, const Path& out, const Path& err,
                   const std::vector<std::string>& environment) {
  const int out_fd = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const int err_fd = ::open(err.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  CHECK(out_fd >= 0 && err_fd >= 0, "the test's own directory");
  const pid_t pid = spawn(arguments, environment, out_fd, err_fd);
  ::close(out_fd);
  ::close(err_fd);
  return Child(pid);
}

Child& Child::operator=(Child&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(exit_code_, other.exit_code_);
  return *this;
}

Child::~Child() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Child::signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);  // -1 would be everybody
}

int Child::wait() {
  if (pid_ <= 0) return exit_code_;
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return exit_code_ = code_of(status);
}

bool Child::running() {
  if (pid_ <= 0) return false;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) == 0) return true;
  exit_code_ = code_of(status);
  pid_ = -1;
  return false;
}

Service::Service(Path data_dir, std::vector<std::string> more, std::string kiln)
    : data_dir_(std::move(data_dir)), child_([&] {
        std::filesystem::create_directories(data_dir_);
        std::vector<std::string> arguments = {std::move(kiln),    "up",       "--data-dir",
                                              data_dir_.string(), "--listen", "tcp://127.0.0.1:0"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        if (std::ranges::find(more, "--device") == more.end())  // also where there are GPUs
          arguments.insert(arguments.end(), {"--device", "cpu"});
        return Child::start(arguments, data_dir_ / "ready", data_dir_ / "log");
      }()) {
  for (int tries = 0; tries < 1'200 && endpoint_.empty() && child_.running(); ++tries) {
    const std::string text = read_file(data_dir_ / "ready").value_or("");
    if (text.starts_with("ready ") && text.back() == '\n')
      endpoint_ = text.substr(6, text.size() - 7);
    else
      pause_ms(50);
  }
}

std::string Service::log() const {
  return read_file(data_dir_ / "log").value_or("");
}

void Service::kill() {
  const pid_t household = child_.pid();
  std::vector<pid_t> members;
  for (const char* name : {"kiln-coordinator", "kiln-worker", "kiln-runner"})
    for (pid_t pid : descendants(household, name)) members.push_back(pid);
  child_.signal(SIGKILL);
  child_.wait();
  for (pid_t pid : members) CHECK(ends(pid), "the household dies with `kiln up`");
}

int Service::stop() {
  child_.signal(SIGTERM);
  return child_.wait();
}

std::vector<pid_t> descendants(pid_t ancestor, const std::string& name) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string text = entry.path().filename();
    if (text.find_first_not_of("0123456789") != std::string::npos) continue;
    const pid_t pid = std::stoi(text);
    std::error_code error;
    const Path executable = std::filesystem::read_symlink(entry.path() / "exe", error);
    if (error || executable.filename() != name) continue;
    for (pid_t up = pid; up > 1; up = state_of(up).parent)
      if (up == ancestor) {
        found.push_back(pid);
        break;
      }
  }
  return found;
}

bool ends(pid_t pid) {
  for (int tries = 0; tries < 3'000; ++tries) {  // a minute
    const char letter = state_of(pid).letter;
    if (letter == 'X' || letter == 'Z') return true;
    pause_ms(20);
  }
  return false;
}

std::string binary(const std::string& name) {
  std::error_code ignored;
  const Path tests = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  return (tests.parent_path() / "bin" / name).string();
}

std::string small_graph(const std::string& name) {
  return std::string(KILN_SOURCE_DIR) + "/tests/graphs/small/" + name;
}

}  // namespace kiln::testing
