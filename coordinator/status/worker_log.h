// WorkerLog: log lines for workers whose state changed: quarantined, serving again, draining. Lines
// for workers that come and go are the loop's. Plain value; one thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "coordinator/status/log_line.h"
#include "schema/messages.h"

namespace kiln {

class WorkerLog {
 public:
  // Against the last call. A worker that was not there counts as one that served.
  std::vector<LogLine> changes(const std::vector<WorkerStats>& workers);

 private:
  std::map<std::string, std::string> states_;  // by name
};

}  // namespace kiln
