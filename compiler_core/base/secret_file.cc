#include "compiler_core/base/secret_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace kiln {
namespace {

tl::unexpected<Error> refused(std::string_view what, const Path& path) {
  const Code code = errno == EACCES || errno == EPERM || errno == EROFS ? Code::kPermissionDenied
                                                                        : Code::kUnavailable;
  return fail(code, std::string(what) + " " + path.string() + ": " + std::strerror(errno));
}

Status sync(const Path& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
  if (fd < 0) return refused("cannot open", path);
  const bool synced = ::fsync(fd) == 0;
  const Status status = synced ? Status() : refused("cannot sync", path);
  ::close(fd);
  return status;
}

Status write_new(const Path& path, std::string_view bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return refused("cannot create", path);
  Status status;
  while (status && !bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n >= 0)
      bytes.remove_prefix(static_cast<size_t>(n));
    else if (errno != EINTR)
      status = refused("cannot write", path);
  }
  if (status && ::fsync(fd) != 0) status = refused("cannot sync", path);
  ::close(fd);
  return status;
}

}  // namespace

// As publish_file (file.h), but link() in place of rename(), which would replace another's.
Status publish_secret(const Path& path, std::string_view bytes) {
  static std::atomic<uint64_t> counter{0};
  Path temp = path;
  temp += ".tmp." + std::to_string(::getpid()) + "." + std::to_string(counter++);
  Status written = write_new(temp, bytes);
  if (written && ::link(temp.c_str(), path.c_str()) != 0 && errno != EEXIST)
    written = refused("cannot publish", path);
  ::unlink(temp.c_str());
  if (!written) return written;
  return sync(path.parent_path().empty() ? Path(".") : path.parent_path(), O_RDONLY | O_DIRECTORY);
}

}  // namespace kiln
