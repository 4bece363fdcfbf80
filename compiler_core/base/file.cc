#include "compiler_core/base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

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
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
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

}  // namespace

Result<std::string> read_file(const Path& path) {
  Fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) return system_error("cannot open", path, errno);
  std::string bytes;
  const off_t size = ::lseek(file.fd, 0, SEEK_END);
  ::lseek(file.fd, 0, SEEK_SET);
  if (size > 0) bytes.reserve(static_cast<size_t>(size));
  char chunk[1 << 16];
  for (;;) {
    const ssize_t n = ::read(file.fd, chunk, sizeof chunk);
    if (n == 0) return bytes;
    if (n < 0) {
      if (errno == EINTR) continue;
      return system_error("cannot read", path, errno);
    }
    bytes.append(chunk, static_cast<size_t>(n));
  }
}

Status write_file(const Path& path, std::string_view bytes) {
  Fd file{::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
  if (file.fd < 0) return system_error("cannot create", path, errno);
  return write_all(file.fd, bytes, path);
}

Status publish_file(const Path& path, std::string_view bytes) {
  static std::atomic<uint64_t> counter{0};
  Path temp = path;
  temp += ".tmp." + std::to_string(::getpid()) + "." + std::to_string(counter++);
  const auto write_and_sync = [&]() -> Status {
    Fd file{::open(temp.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)};
    if (file.fd < 0) return system_error("cannot create", temp, errno);
    TRY_STATUS(write_all(file.fd, bytes, temp));
    if (::fsync(file.fd) != 0) return system_error("cannot sync", temp, errno);
    return {};
  };
  Status written = write_and_sync();
  if (written && ::rename(temp.c_str(), path.c_str()) != 0)
    written = system_error("cannot publish", path, errno);
  if (!written) {
    ::unlink(temp.c_str());
    return written;
  }
  return sync_directory(path.parent_path().empty() ? Path(".") : path.parent_path());
}

Status sync_directory(const Path& directory) {
  Fd dir{::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (dir.fd < 0) return system_error("cannot open", directory, errno);
  if (::fsync(dir.fd) != 0) return system_error("cannot sync", directory, errno);
  return {};
}

Status make_directories(const Path& path) {
  const Path parent = path.parent_path().empty() ? Path(".") : path.parent_path();
  if (::mkdir(path.c_str(), 0777) == 0) return sync_directory(parent);
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
  if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST)
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

}  // namespace kiln
