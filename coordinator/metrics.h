// Metrics: what /metrics says. Every family, its unit and what to alert on: docs/operations.md,
// which a test holds to this code.
#pragma once

#include <string>

#include "coordinator/status_board.h"

namespace kiln {

// Of this process, from /proc and the kernel, at the time of asking.
struct ProcessUse {
  double cpu_s = 0;
  double resident_bytes = 0;
  double open_fds = 0, max_fds = 0;
  double started_s = 0;  // since the epoch
};
ProcessUse process_use();

// In the Prometheus text format. `log_lines_dropped`: that the log could not take.
std::string metrics_text(const StatusSnapshot& status, const ProcessUse& process,
                         int64_t log_lines_dropped);

}  // namespace kiln
