// Kiln's other programs, which lie beside `kiln`, as its children.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "compiler_core/base/file.h"

namespace kiln::cli {

Path beside_this_program(std::string_view name);

// Starts `arguments`; its stdout is `stdout_fd`, and its stderr `stderr_fd`, unless negative. The
// child gets the signal `death` when this process ends, however it ends. kUnavailable: no process.
Result<pid_t> spawn(const std::vector<std::string>& arguments, int stdout_fd, int stderr_fd,
                    int death);

struct Ended {
  int exit_code = -1;  // negative: it was killed
  std::string output;  // stdout and stderr as they came, at most 64 KiB
};
// Runs `arguments` to the end, or kills it after `patience`.
Result<Ended> run_program(const std::vector<std::string>& arguments, std::chrono::seconds patience);

}  // namespace kiln::cli
