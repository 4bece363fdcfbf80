#include "client/cli/child_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace kiln::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostOutput = 64 << 10;

}  // namespace

Path beside_this_program(std::string_view name) {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() / name;
}

Result<pid_t> spawn(const std::vector<std::string>& arguments, int stdout_fd, int stderr_fd,
                    int death) {
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return fail(Code::kUnavailable, std::string("cannot fork: ") + std::strerror(errno));
  if (pid > 0) return pid;
  ::setpgid(0, 0);  // Ctrl-C reaches us alone; we pass it on in order
  ::prctl(PR_SET_PDEATHSIG, death);
  if (::getppid() != parent) ::_exit(127);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (stdout_fd >= 0) ::dup2(stdout_fd, STDOUT_FILENO);
  if (stderr_fd >= 0) ::dup2(stderr_fd, STDERR_FILENO);
  ::execv(argv[0], argv.data());
  const std::string message =
      fmt::format("kiln: cannot run {}: {}\n", arguments[0], std::strerror(errno));
  (void)!::write(STDERR_FILENO, message.data(), message.size());
  ::_exit(127);
}

Result<Ended> run_program(const std::vector<std::string>& arguments,
                          std::chrono::seconds patience) {
  std::array<int, 2> pipe_fds;
  if (::pipe2(pipe_fds.data(), O_CLOEXEC) != 0)
    return fail(Code::kUnavailable, std::string("cannot make a pipe: ") + std::strerror(errno));
  const auto pid = spawn(arguments, pipe_fds[1], pipe_fds[1], SIGKILL);
  ::close(pipe_fds[1]);
  Ended ended;
  std::array<char, 4096> chunk;
  const auto deadline = Clock::now() + patience;
  while (pid && Clock::now() < deadline) {
    pollfd poll_fd{pipe_fds[0], POLLIN, 0};
    if (::poll(&poll_fd, 1, 100) <= 0) continue;
    const ssize_t n = ::read(pipe_fds[0], chunk.data(), chunk.size());
    if (n <= 0) break;
    if (ended.output.size() < kMostOutput)
      ended.output.append(chunk.data(), static_cast<size_t>(n));
  }
  ::close(pipe_fds[0]);
  if (!pid) return fail(pid.error());
  if (Clock::now() >= deadline) ::kill(*pid, SIGKILL);
  int status = 0;
  ::waitpid(*pid, &status, 0);
  if (WIFEXITED(status)) ended.exit_code = WEXITSTATUS(status);
  return ended;
}

}  // namespace kiln::cli
