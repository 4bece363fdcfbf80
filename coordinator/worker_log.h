// WorkerLog: lines for workers whose state changed: into quarantine and out of it, draining. Who
// comes and who goes is the connections' to say. Plain value; one thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "coordinator/log_line.h"
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
