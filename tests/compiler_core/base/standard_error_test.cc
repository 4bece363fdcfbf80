#include "compiler_core/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace kiln {
namespace {

// Writes more than anything holds to a stderr that is `fd`; 0 when it was not held up.
int flood(int fd) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::dup2(fd, STDERR_FILENO);
    never_wait_for_stderr();
    const std::string line(1000, 'x');
    ssize_t written = 0;
    for (int i = 0; i < 2000; ++i) written = ::write(STDERR_FILENO, line.data(), line.size());
    ::_exit(written < 0 && errno == EAGAIN ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(StandardError, APipeThatNobodyReadsHoldsNobodyUp) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_EQ(flood(ends[1]), 0);
  EXPECT_EQ(::fcntl(ends[1], F_GETFL) & O_NONBLOCK, 0) << "for others it is as it was";
  for (const int fd : ends) ::close(fd);
}

TEST(StandardError, NorDoesASocket) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  EXPECT_EQ(flood(ends[1]), 0);
  for (const int fd : ends) ::close(fd);
}

}  // namespace
}  // namespace kiln
