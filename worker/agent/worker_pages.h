// The pages of a worker's HTTP port:
//   /metrics  Prometheus text.
//   /healthz  200 while the agent goes round; 503 when it has not for half a minute: restart it.
//   /readyz   200 while it takes work: connected to its coordinator and not draining.
#pragma once

#include <string_view>

#include "schema/metrics/http_port.h"
#include "worker/agent/worker_status.h"

namespace kiln {

HttpAnswer worker_page(const WorkerStatus& status, WorkerStatus::Clock::time_point now,
                       std::string_view path);

}  // namespace kiln
