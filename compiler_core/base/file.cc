#include "compiler_core/base/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>

namespace kiln {
namespace {

tl::unexpected<Error> system_error(std::string_view what, const Path& path, int error) {
  Code code = Code::kInternal;
  if (error == ENOENT || error == ENOTDIR) code = Code::kNotFound;
  if (error == EACCES || error == EPERM || error == EROFS) code = Code::kPermissionDenied;
  if (error == ENOSPC || error == EDQUOT || error == EIO || error == EFBIG)
    code = Code::kUnavailable;
  return fail(code, std::string(what) + " " + path.string() + ": " + std::strerror(error));
}

// Whatever the umask: others read at most, and hold no lock of ours.
constexpr mode_t kFolderMode = 0755, kLockMode = 0600;

// Closes on scope exit; release() when close's own error matters.
struct Fd {
  int fd;
  ~Fd() {
    if (fd >= 0) ::close(fd);
  }
};

Status write_all(int fd, std::string_view bytes, const Path& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return system_error("cannot write", path, errno);
    }
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

Result<int> lock_file(const Path& path, FileLock::Mode mode, int extra) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kLockMode);
  if (fd < 0) return system_error("cannot open", path, errno);
  const int kind = mode == FileLock::Mode::kShared ? LOCK_SH : LOCK_EX;
  while (::flock(fd, kind | extra) != 0) {
    if (errno == EINTR) continue;
    const int error = errno;
    ::close(fd);
    if (error == EWOULDBLOCK)
      return fail(Code::kUnavailable, path.string() + " is held by another process");
    return system_error("cannot lock", path, error);
  }
  return fd;
}

enum class Publication : uint8_t {
  kReplace,  // readable by all, in place of what was there
  kSecret,   // readable by the owner; what is there stays
  kUnsynced  // as kReplace, and not durable
};

constexpr std::string_view kTempMark = ".tmp.";  // NAME.tmp.PID.COUNTER

Status publish(const Path& path, std::string_view bytes, Publication how) {
  static std::atomic<uint64_t> counter{0};
  const bool secret = how == Publication::kSecret;
  Path temp = path;
  temp += std::string(kTempMark) + std::to_string(::getpid()) + "." + std::to_string(counter++);
  const auto write_and_sync = [&]() -> Status {
    Fd file{::open(temp.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, secret ? 0600 : 0644)};
    if (file.fd < 0) return system_error("cannot create", temp, errno);
    TRY_STATUS(write_all(file.fd, bytes, temp));
    if (how != Publication::kUnsynced && ::fsync(file.fd) != 0)
      return system_error("cannot sync", temp, errno);
    return {};
  };
  // link() fails where rename() would replace another's file.
  const auto put_in_place = [&] {
    return secret ? ::link(temp.c_str(), path.c_str()) == 0 || errno == EEXIST
                  : ::rename(temp.c_str(), path.c_str()) == 0;
  };
  Status written = write_and_sync();
  if (written && !put_in_place()) written = system_error("cannot publish", path, errno);
  if (secret || !written) ::unlink(temp.c_str());
  if (!written || how == Publication::kUnsynced) return written;
  return sync_directory(path.parent_path().empty() ? Path(".") : path.parent_path());
}

// The process in the name of a temporary file; 0: not such a name.
pid_t writer_of(std::string_view name) {
  const size_t mark = name.rfind(kTempMark);
  if (mark == std::string_view::npos) return 0;
  const char* const digits = name.data() + mark + kTempMark.size();
  const char* const end = name.data() + name.size();
  pid_t pid = 0;
  const auto [after, error] = std::from_chars(digits, end, pid);
  return error == std::errc() && after != end && *after == '.' && pid > 0 ? pid : 0;
}

bool is_gone(pid_t pid) {
  return ::kill(pid, 0) != 0 && errno == ESRCH;
}

// A process of an earlier boot may have had the number of one that lives now.
bool is_old(const Path& file) {
  std::error_code error;
  const auto written = std::filesystem::last_write_time(file, error);
  const auto now = std::filesystem::file_time_type::clock::now();
  return !error && now - written > std::chrono::hours(1);
}

Result<std::string> read_all(int fd, const Path& path) {
  std::string bytes;
  // A directory, or a device, may have any number for its size.
  struct stat facts = {};
  if (::fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode))
    bytes.reserve(static_cast<size_t>(facts.st_size));
  char chunk[1 << 16];
  for (;;) {
    const ssize_t n = ::read(fd, chunk, sizeof chunk);
    if (n == 0) return bytes;
    if (n < 0) {
      if (errno == EINTR) continue;
      return system_error("cannot read", path, errno);
    }
    bytes.append(chunk, static_cast<size_t>(n));
  }
}

}  // namespace

Result<std::string> read_file(const Path& path) {
  Fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) return system_error("cannot open", path, errno);
  try {
    return read_all(file.fd, path);
  } catch (
      const std::exception&) {  // bad_alloc, length_error: a sparse file costs its writer nothing
    return system_error("cannot read all of", path, ENOMEM);
  }
}

Status write_file(const Path& path, std::string_view bytes) {
  Fd file{::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
  if (file.fd < 0) return system_error("cannot create", path, errno);
  return write_all(file.fd, bytes, path);
}

Status publish_file(const Path& path, std::string_view bytes) {
  return publish(path, bytes, Publication::kReplace);
}

Status publish_unsynced(const Path& path, std::string_view bytes) {
  return publish(path, bytes, Publication::kUnsynced);
}

Status publish_secret(const Path& path, std::string_view bytes) {
  return publish(path, bytes, Publication::kSecret);
}

void remove_unpublished(const Path& directory) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename();
    const pid_t writer = writer_of(name);
    std::error_code ignored;
    if (writer != 0 && (is_gone(writer) || is_old(at->path())))
      std::filesystem::remove(at->path(), ignored);
  }
}

Status sync_directory(const Path& directory) {
  Fd dir{::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (dir.fd < 0) return system_error("cannot open", directory, errno);
  if (::fsync(dir.fd) != 0) return system_error("cannot sync", directory, errno);
  return {};
}

Status make_directories(const Path& path) {
  const Path parent = path.parent_path().empty() ? Path(".") : path.parent_path();
  if (::mkdir(path.c_str(), kFolderMode) == 0) return sync_directory(parent);
  const int error = errno;
  std::error_code ignored;
  if (error == EEXIST && std::filesystem::is_directory(path, ignored)) {
    Status synced = sync_directory(parent);
    // A parent that we may not read was made by somebody else, and so was what is in it.
    if (!synced && synced.error().code == Code::kPermissionDenied) return {};
    return synced;
  }
  if (error != ENOENT || path.empty() || path == parent)
    return system_error("cannot create directory", path, error);
  TRY_STATUS(make_directories(parent));
  if (::mkdir(path.c_str(), kFolderMode) != 0 && errno != EEXIST)
    return system_error("cannot create directory", path, errno);
  return sync_directory(parent);
}

Result<TempDir> TempDir::create(std::string_view prefix) {
  std::error_code ignored;
  Path base = std::filesystem::temp_directory_path(ignored);
  if (ignored) base = "/tmp";
  std::string pattern = (base / (std::string(prefix) + "-XXXXXX")).string();
  if (::mkdtemp(pattern.data()) == nullptr)
    return system_error("cannot create a directory like", pattern, errno);
  return TempDir(pattern);
}

TempDir& TempDir::operator=(TempDir&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

TempDir::~TempDir() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Result<FileLock> FileLock::acquire(const Path& path, Mode mode) {
  TRY(const int fd, lock_file(path, mode, 0));
  return FileLock(fd);
}

Result<FileLock> FileLock::try_acquire(const Path& path, Mode mode) {
  TRY(const int fd, lock_file(path, mode, LOCK_NB));
  return FileLock(fd);
}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

void never_wait_for_stderr() {
  struct stat status {};
  if (::fstat(STDERR_FILENO, &status) != 0) return;
  if (S_ISSOCK(status.st_mode)) {  // a service manager's, one for each service
    const int flags = ::fcntl(STDERR_FILENO, F_GETFL);
    if (flags >= 0) ::fcntl(STDERR_FILENO, F_SETFL, flags | O_NONBLOCK);
  }
  if (!S_ISFIFO(status.st_mode)) return;
  // Opened anew, because the flag would else hold for every process that shares the old one.
  const int fd = ::open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return;
  ::dup2(fd, STDERR_FILENO);
  ::close(fd);
}

}  // namespace kiln
