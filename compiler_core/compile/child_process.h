// A command run as a child in a process group of its own, with a bound on its time. Stateless;
// thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler_core/base/file.h"

namespace kiln {

struct ChildOutcome {
  int exit_status = 0;  // 128 + signal when one ended it
  std::string output;   // stdout and stderr, the first kMaxChildOutput bytes
};
inline constexpr size_t kMaxChildOutput = 64 << 10;

// Runs `command` (its first word is looked up on PATH) in `directory`, which also takes its
// temporary files; stdin is empty. The environment is only PATH and LC_ALL=C, so that our own
// settings change nothing. kNotFound when there is no such program, kUnavailable when the system
// lacks processes or descriptors, kDeadlineExceeded when the time is over and the whole group was
// killed.
Result<ChildOutcome> run_child(const std::vector<std::string>& command, const Path& directory,
                               int64_t timeout_ms);

}  // namespace kiln
