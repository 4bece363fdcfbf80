// The pages of the coordinator's HTTP port:
//   /metrics  Prometheus text.
//   /healthz  200 while the loop turns (or the service still starts); 503 when it has not for ten
//             seconds: restart it.
//   /readyz   200 when look-ups are served; 503 while starting, stopping, or when the loop hangs:
//             send clients elsewhere. What is missing beyond look-ups (no worker, a disk that takes
//             no writes) is a line `degraded: ...` under the 200: cached programs are still served.
#pragma once

#include <string>
#include <string_view>

#include "coordinator/status/service_status.h"
#include "schema/metrics/http_port.h"
#include "schema/metrics/metrics_text.h"

namespace kiln {

bool is_status_path(std::string_view path);  // one of these
HttpAnswer status_page(const ServiceStatus& status, ServiceStatus::Clock::time_point now,
                       int64_t log_lines_dropped, std::string_view path);

// The text of /metrics, in the Prometheus format (metrics.cc). docs/operations.md lists every
// family, its unit and what to alert on; a test holds it to this code. `log_lines_dropped`: lines
// that the log could not take.
std::string metrics_text(const StatusSnapshot& status, const ProcessUse& process,
                         int64_t log_lines_dropped);

}  // namespace kiln
