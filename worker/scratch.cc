#include "worker/scratch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace kiln {
namespace {

// Kills every process whose working directory lies in `directory`. False when there was none.
bool kill_inhabitants(const std::string& directory) {
  bool found = false;
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator("/proc", error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename();
    if (!std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; })) continue;
    std::error_code unreadable;
    const Path cwd = std::filesystem::read_symlink(it->path() / "cwd", unreadable);
    if (unreadable || !cwd.string().starts_with(directory + "/")) continue;
    found = ::kill(std::atoi(name.c_str()), SIGKILL) == 0 || found;
  }
  return found;
}

void evict_all(const Path& directory) {
  constexpr int kRounds = 20;  // a compiler may just be starting its next pass
  for (int round = 0; round < kRounds && kill_inhabitants(directory.string()); ++round)
    ::usleep(10'000);
}

[[noreturn]] void wait_and_clean(int parent_alive, const Path& directory) {
  ::prctl(PR_SET_NAME, "kiln-janitor");
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, nullptr);  // the worker decides when it is over
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int standard : {0, 1, 2}) ::dup2(null, standard);
  char byte;
  while (::read(parent_alive, &byte, 1) < 0 && errno == EINTR) {
  }
  evict_all(directory);
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  ::_exit(0);
}

}  // namespace

Result<Scratch> Scratch::create() {
  TRY(TempDir dir, TempDir::create("kiln-worker"));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return fail(Code::kUnavailable, std::string("cannot make a pipe: ") + std::strerror(errno));
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[1]);
    wait_and_clean(ends[0], dir.path());
  }
  ::close(ends[0]);
  if (child < 0) {
    ::close(ends[1]);
    return fail(Code::kUnavailable, std::string("cannot fork: ") + std::strerror(errno));
  }
  return Scratch(std::move(dir), ends[1]);
}

void Scratch::evict() const {
  evict_all(dir_.path());
}

Scratch::~Scratch() {
  if (alive_ >= 0) ::close(alive_);
}

}  // namespace kiln
