#include "compiler_core/compile/child_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

struct Descriptor {
  Descriptor() = default;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }
  void close() {
    if (fd >= 0) ::close(fd);
    fd = -1;
  }
  int fd = -1;
};

// How posix_spawn shall start the child; frees what it holds.
struct SpawnPlan {
  SpawnPlan() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }

  void prepare(std::vector<std::string>& command, const Path& directory, int output) {
    // glibc 2.28, which the wheel supports, lacks this action: env(1) changes the folder instead.
    if (::posix_spawn_file_actions_addchdir_np(&actions, directory.c_str()) != 0)
      command.insert(command.begin(), {"env", "--chdir=" + directory.string(), "--"});
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
    // A group of its own, which the deadline kills; and no signal blocked or ignored from ours.
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setsigdefault(&attributes, &all);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    ::posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

std::vector<std::string> child_environment(const Path& directory) {
  std::vector<std::string> environment = {"LC_ALL=C", "TMPDIR=" + directory.string()};
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (std::string_view(*variable).starts_with("PATH=")) environment.emplace_back(*variable);
  return environment;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (std::string& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

Result<pid_t> spawn(std::vector<std::string> command, std::vector<std::string> environment,
                    const Path& directory, int output) {
  SpawnPlan plan;
  plan.prepare(command, directory, output);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, command[0].c_str(), &plan.actions, &plan.attributes,
                                   pointers(command).data(), pointers(environment).data());
  if (error == 0) return child;
  const bool absent = error == ENOENT || error == EACCES || error == ENOTDIR;
  return fail(absent ? Code::kNotFound : Code::kUnavailable,
              fmt::format("cannot start {}: {}", command[0], std::strerror(error)));
}

// Reads until the child and all it started have closed the pipe; false when time is over first.
bool read_until(int fd, Clock::time_point deadline, std::string& output) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd waiting{fd, POLLIN, 0};
    const int ready =
        ::poll(&waiting, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000'000)));
    if (ready == 0) return false;
    if (ready < 0) continue;  // a signal
    char buffer[4096];
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    output.append(buffer, std::min(static_cast<size_t>(got), kMaxChildOutput - output.size()));
  }
}

// The children that run and the directories that there are, for end_children().
struct Children {
  std::mutex mutex;
  bool ending = false;
  std::set<pid_t> running;
  std::set<Path> directories;
};
Children& children() {
  static Children all;
  return all;
}

// A child is listed until it is about to be waited for: its process group is nobody else's.
class ListedChild {
 public:
  explicit ListedChild(pid_t child) : child_(child) {
    const std::scoped_lock lock(children().mutex);
    children().running.insert(child);
    if (children().ending) ::kill(-child, SIGKILL);
  }
  ListedChild(const ListedChild&) = delete;
  ListedChild& operator=(const ListedChild&) = delete;
  ~ListedChild() {
    const std::scoped_lock lock(children().mutex);
    children().running.erase(child_);
  }

 private:
  const pid_t child_;
};

bool is_ending() {
  const std::scoped_lock lock(children().mutex);
  return children().ending;
}

int reap(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

Result<ChildOutcome> run_child(const std::vector<std::string>& command, const Path& directory,
                               int64_t timeout_ms, const StartChild& start) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  if (is_ending()) return fail(Code::kUnavailable, "this process ends");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return fail(Code::kUnavailable, fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  Descriptor read_end, write_end;
  read_end.fd = ends[0];
  write_end.fd = ends[1];
  const std::vector<std::string> environment = child_environment(directory);
  TRY(const pid_t child, start ? start(command, environment, directory, write_end.fd)
                               : spawn(command, environment, directory, write_end.fd));
  write_end.close();
  ChildOutcome outcome;
  bool in_time = false;
  {
    const ListedChild listed(child);
    in_time = read_until(read_end.fd, deadline, outcome.output);
    if (!in_time) ::kill(-child, SIGKILL);
  }
  if (!in_time) {
    reap(child);
    return fail(Code::kDeadlineExceeded,
                fmt::format("{} ran longer than {} ms", command[0], timeout_ms));
  }
  outcome.exit_status = reap(child);
  return outcome;
}

Result<ChildDirectory> ChildDirectory::create(std::string_view prefix) {
  const std::scoped_lock lock(children().mutex);
  if (children().ending) return fail(Code::kUnavailable, "this process ends");
  TRY(TempDir made, TempDir::create(prefix));
  children().directories.insert(made.path());
  return ChildDirectory(std::move(made));
}

ChildDirectory::~ChildDirectory() {
  if (!directory_) return;
  const Path path = directory_->path();
  directory_.reset();  // while it is listed, so that it is removed by somebody
  const std::scoped_lock lock(children().mutex);
  children().directories.erase(path);
}

void end_children() {
  {
    const std::scoped_lock lock(children().mutex);
    children().ending = true;
    for (const pid_t child : children().running) ::kill(-child, SIGKILL);
  }
  // Their callers remove the directories themselves, unless this process ends before that.
  constexpr auto kTheirTime = std::chrono::milliseconds(50);
  std::this_thread::sleep_for(kTheirTime);
  const std::scoped_lock lock(children().mutex);
  std::error_code ignored;
  for (const Path& directory : children().directories)
    std::filesystem::remove_all(directory, ignored);
}

}  // namespace kiln
