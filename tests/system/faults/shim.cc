// The fault shim: preloaded into Kiln's programs, it stands between them and the C library's calls
// on files, sockets and children, recognises the named points (fault_board.h) by program, call and
// path, counts each pass on the board, and does to it what the board says: kills, stops, fails,
// halves, delays. Programs without a point (compilers) it leaves alone. Thread-safe; keeps nothing.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "tests/system/faults/fault_board.h"

namespace {

using kiln::testing::Fault;
using kiln::testing::FaultAction;
using kiln::testing::FaultBoard;
using kiln::testing::FaultCall;
using kiln::testing::kFaultBoardVariable;
using kiln::testing::kFaultPoints;

char program[64];  // name of this executable

// Null where there is no board, or no point of this program.
FaultBoard* open_board() {
  const char* file = ::getenv(kFaultBoardVariable);
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
  if (file == nullptr || length <= 0) return nullptr;
  path[length] = 0;
  const char* slash = ::strrchr(path, '/');
  const char* name = slash != nullptr ? slash + 1 : path;
  if (::strlen(name) >= sizeof program) return nullptr;
  ::strcpy(program, name);
  bool has_points = false;
  for (const auto& point : kFaultPoints) has_points |= ::strcmp(point.program, program) == 0;
  if (!has_points) return nullptr;
  using Open = int (*)(const char*, int, ...);
  const auto real_open = reinterpret_cast<Open>(::dlsym(RTLD_NEXT, "open"));
  const int fd = real_open(file, O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  void* mapped = ::mmap(nullptr, sizeof(FaultBoard), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  auto* opened = mapped == MAP_FAILED ? nullptr : static_cast<FaultBoard*>(mapped);
  return opened != nullptr && opened->magic == FaultBoard::kMagic ? opened : nullptr;
}

FaultBoard* board() {
  static FaultBoard* const opened = open_board();
  return opened;
}

// What stands between a call and its doing.
class Pass {
 public:
  Pass(FaultCall call, const char* subject) {
    if (board() != nullptr && subject != nullptr) enter(call, subject);
  }
  // `subject` is what `fd` refers to.
  Pass(FaultCall call, int fd) {
    if (board() == nullptr) return;
    const int kept = errno;
    char path[4096], link[32];
    if (call == FaultCall::kSend || call == FaultCall::kReceive) {
      sockaddr_storage address{};
      socklen_t size = sizeof address;
      if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0)
        enter(call, address.ss_family == AF_UNIX ? "unix" : "tcp");
    } else {
      char* digits = link + sizeof link - 1;
      *digits = 0;
      for (int left = fd; digits == link + sizeof link - 1 || left > 0; left /= 10)
        *--digits = static_cast<char>('0' + left % 10);
      char proc[64] = "/proc/self/fd/";
      ::strcat(proc, digits);
      const ssize_t length = ::readlink(proc, path, sizeof path - 1);
      if (length > 0) {
        path[length] = 0;
        enter(call, path);
      }
    }
    errno = kept;
  }
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;
  // After the call.
  ~Pass() {
    if (!struck_) return;
    const int kept = errno;
    if (fault_.action == FaultAction::kTorn) die();
    if (fault_.after) strike();
    errno = kept;
  }

  bool fails() const {
    if (!struck_ || fault_.action != FaultAction::kFail) return false;
    errno = fault_.error;
    return true;
  }
  size_t allowed(size_t wanted) const {
    const bool halves =
        struck_ && (fault_.action == FaultAction::kShort || fault_.action == FaultAction::kTorn);
    return halves && wanted > 1 ? wanted / 2 : wanted;
  }

 private:
  static void die() { ::kill(::getpid(), SIGKILL); }

  void enter(FaultCall call, const char* subject) {
    for (size_t i = 0; i < kFaultPoints.size(); ++i) {
      const auto& point = kFaultPoints[i];
      if (point.call != call || ::strcmp(point.program, program) != 0 ||
          ::fnmatch(point.subject, subject, 0) != 0)
        continue;
      board()->passed[i].fetch_add(1);
      meet(static_cast<int>(i));
      return;
    }
  }

  void meet(int point) {
    FaultBoard& shared = *board();
    if (!shared.armed.load()) return;
    for (size_t n = 0; n < shared.faults; ++n) {
      FaultBoard::Slot& slot = shared.slots[n];
      if (slot.fault.point != point) continue;
      if (slot.to_skip.fetch_sub(1) > 0) return;
      if (slot.to_strike.fetch_sub(1) <= 0) return;
      fault_ = slot.fault;
      struck_ = true;
      slot.struck_pid.store(::getpid());
      slot.struck.fetch_add(1);
      if (!fault_.after) strike();
      return;
    }
  }

  void strike() const {
    if (fault_.action == FaultAction::kKill) die();
    if (fault_.action == FaultAction::kStop) ::kill(::getpid(), SIGSTOP);
    if (fault_.action == FaultAction::kDelay)
      ::usleep(static_cast<useconds_t>(fault_.delay_ms) * 1000);
  }

  Fault fault_;
  bool struck_ = false;
};

// The C library's own function of that name.
template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

int open_as(const char* name, const char* path, int flags, mode_t mode) {
  using Open = int(const char*, int, ...);
  Open* const open_really = real<Open>(name);
  if ((flags & O_CREAT) == 0) return open_really(path, flags, mode);
  const Pass pass(FaultCall::kCreate, path);
  return pass.fails() ? -1 : open_really(path, flags, mode);
}

}  // namespace

extern "C" {

#define KILN_SHIM_OPEN(name)                                               \
  int name(const char* path, int flags, ...) {                             \
    va_list rest;                                                          \
    va_start(rest, flags);                                                 \
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0; \
    va_end(rest);                                                          \
    return open_as(#name, path, flags, mode);                              \
  }
KILN_SHIM_OPEN(open)
KILN_SHIM_OPEN(open64)
#undef KILN_SHIM_OPEN

int mkdir(const char* path, mode_t mode) noexcept {
  static auto* const really = real<int(const char*, mode_t)>("mkdir");
  const Pass pass(FaultCall::kMakeDirectory, path);
  return pass.fails() ? -1 : really(path, mode);
}

ssize_t read(int fd, void* bytes, size_t size) {
  static auto* const really = real<ssize_t(int, void*, size_t)>("read");
  const Pass pass(FaultCall::kRead, fd);
  return pass.fails() ? -1 : really(fd, bytes, pass.allowed(size));
}

ssize_t pread64(int fd, void* bytes, size_t size, off64_t at) {
  static auto* const really = real<ssize_t(int, void*, size_t, off64_t)>("pread64");
  const Pass pass(FaultCall::kRead, fd);
  return pass.fails() ? -1 : really(fd, bytes, pass.allowed(size), at);
}

ssize_t write(int fd, const void* bytes, size_t size) {
  static auto* const really = real<ssize_t(int, const void*, size_t)>("write");
  const Pass pass(FaultCall::kWrite, fd);
  return pass.fails() ? -1 : really(fd, bytes, pass.allowed(size));
}

ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t at) {
  static auto* const really = real<ssize_t(int, const void*, size_t, off64_t)>("pwrite64");
  const Pass pass(FaultCall::kWrite, fd);
  return pass.fails() ? -1 : really(fd, bytes, pass.allowed(size), at);
}

int fsync(int fd) {
  static auto* const really = real<int(int)>("fsync");
  const Pass pass(FaultCall::kSync, fd);
  return pass.fails() ? -1 : really(fd);
}

int fdatasync(int fd) {
  static auto* const really = real<int(int)>("fdatasync");
  const Pass pass(FaultCall::kSync, fd);
  return pass.fails() ? -1 : really(fd);
}

int rename(const char* from, const char* to) noexcept {
  static auto* const really = real<int(const char*, const char*)>("rename");
  const Pass pass(FaultCall::kRename, to);
  return pass.fails() ? -1 : really(from, to);
}

int link(const char* from, const char* to) noexcept {
  static auto* const really = real<int(const char*, const char*)>("link");
  const Pass pass(FaultCall::kRename, to);
  return pass.fails() ? -1 : really(from, to);
}

ssize_t send(int fd, const void* bytes, size_t size, int flags) {
  static auto* const really = real<ssize_t(int, const void*, size_t, int)>("send");
  const Pass pass(FaultCall::kSend, fd);
  return pass.fails() ? -1 : really(fd, bytes, pass.allowed(size), flags);
}

ssize_t recv(int fd, void* bytes, size_t size, int flags) {
  static auto* const really = real<ssize_t(int, void*, size_t, int)>("recv");
  const Pass pass(FaultCall::kReceive, fd);
  return pass.fails() ? -1 : really(fd, bytes, pass.allowed(size), flags);
}

// These answer the error itself.
int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                const posix_spawnattr_t* attributes, char* const argv[],
                char* const environment[]) noexcept {
  static auto* const really = real<decltype(posix_spawn)>("posix_spawn");
  const Pass pass(FaultCall::kSpawn, path);
  return pass.fails() ? errno : really(pid, path, actions, attributes, argv, environment);
}

int posix_spawnp(pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions,
                 const posix_spawnattr_t* attributes, char* const argv[],
                 char* const environment[]) noexcept {
  static auto* const really = real<decltype(posix_spawnp)>("posix_spawnp");
  const Pass pass(FaultCall::kSpawn, file);
  return pass.fails() ? errno : really(pid, file, actions, attributes, argv, environment);
}

}  // extern "C"
