// Metrics: what /metrics says. Every family, its unit and what to alert on: docs/operations.md,
// which a test holds to this code.
#pragma once

#include <string>

#include "coordinator/status_board.h"
#include "schema/metrics/metrics_text.h"

namespace kiln {

// In the Prometheus text format. `log_lines_dropped`: that the log could not take.
std::string metrics_text(const StatusSnapshot& status, const ProcessUse& process,
                         int64_t log_lines_dropped);

}  // namespace kiln
