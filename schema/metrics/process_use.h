// ProcessUse: what this process takes of its machine, under the names that Prometheus' own client
// libraries use. Thread-safe.
#pragma once

#include "schema/metrics/metrics_text.h"

namespace kiln {

// From /proc and the kernel, at the time of asking.
struct ProcessUse {
  double cpu_s = 0;
  double resident_bytes = 0;
  double open_fds = 0, max_fds = 0;
  double started_s = 0;  // since the epoch
};
ProcessUse process_use();
double resident_bytes();  // of it alone; 0 when the system does not say

// The families process_*.
void process_families(MetricsText& out, const ProcessUse& use);

}  // namespace kiln
