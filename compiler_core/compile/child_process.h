// A command run as a child in a process group of its own, with a bound on its time. Stateless;
// thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler_core/base/file.h"

namespace kiln {

struct ChildOutcome {
  int exit_status = 0;  // 128 + signal when one ended it
  std::string output;   // stdout and stderr, the first kMaxChildOutput bytes
};
inline constexpr size_t kMaxChildOutput = 64 << 10;

// Starts `words` with `environment` in `directory`, its stdout and stderr at `output`, as the leader
// of a process group. Errors as run_child.
using StartChild = std::function<Result<pid_t>(const std::vector<std::string>& words,
                                               const std::vector<std::string>& environment,
                                               const Path& directory, int output)>;

// Runs `command` (its first word is looked up on PATH) in `directory`, which also takes its
// temporary files; stdin is empty. The environment is only PATH and LC_ALL=C, so that our own
// settings change nothing. kNotFound when there is no such program, kUnavailable when the system
// lacks processes or descriptors, kDeadlineExceeded when the time is over and the whole group was
// killed. `start`: another way to start it, such as in a sandbox.
Result<ChildOutcome> run_child(const std::vector<std::string>& command, const Path& directory,
                               int64_t timeout_ms, const StartChild& start = {});

// A temporary directory for children, removed by its owner or by end_children().
class ChildDirectory {
 public:
  // Errors as TempDir::create(); kUnavailable after end_children().
  static Result<ChildDirectory> create(std::string_view prefix);
  ChildDirectory(ChildDirectory&& other) noexcept
      : directory_(std::exchange(other.directory_, std::nullopt)) {}
  ChildDirectory& operator=(ChildDirectory&&) = delete;
  ~ChildDirectory();
  const Path& path() const { return directory_->path(); }

 private:
  explicit ChildDirectory(TempDir directory) : directory_(std::move(directory)) {}
  std::optional<TempDir> directory_;
};

// Before this process ends itself in the middle: kills the children of every run_child() and removes
// every ChildDirectory, which their owners do not get to. From then on both are kUnavailable.
void end_children();

}  // namespace kiln
