// The pages of the coordinator's HTTP port:
//   /metrics  Prometheus text.
//   /healthz  200 while the loop turns (or the service still starts); 503 when it has not for ten
//             seconds: restart it.
//   /readyz   200 when look-ups are served; 503 while starting, stopping, or when the loop hangs:
//             send clients elsewhere. What is missing beyond look-ups (no worker, a disk that takes
//             no writes) is a line `degraded: ...` under the 200: cached programs are still served.
#pragma once

#include "coordinator/status_board.h"
#include "schema/metrics/http_port.h"

namespace kiln {

HttpAnswer status_page(const StatusBoard& board, StatusBoard::Clock::time_point now,
                       int64_t log_lines_dropped, std::string_view path);

}  // namespace kiln
