#include "compiler_core/base/standard_error.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace kiln {

void never_wait_for_stderr() {
  struct stat status {};
  if (::fstat(STDERR_FILENO, &status) != 0) return;
  if (S_ISSOCK(status.st_mode)) {  // a service manager's, one for each service
    const int flags = ::fcntl(STDERR_FILENO, F_GETFL);
    if (flags >= 0) ::fcntl(STDERR_FILENO, F_SETFL, flags | O_NONBLOCK);
  }
  if (!S_ISFIFO(status.st_mode)) return;
  // Opened anew, because the flag would else hold for all who share the old one.
  const int fd = ::open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return;
  ::dup2(fd, STDERR_FILENO);
  ::close(fd);
}

}  // namespace kiln
