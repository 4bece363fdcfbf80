#include "coordinator/status/worker_log.h"

#include <utility>

namespace kiln {
namespace {

constexpr char kServing[] = "serving";

}  // namespace

std::vector<LogLine> WorkerLog::changes(const std::vector<WorkerStats>& workers) {
  const std::map<std::string, std::string> before = std::exchange(states_, {});
  std::vector<LogLine> lines;
  for (const WorkerStats& worker : workers) {
    const std::string state = worker.state.empty() ? kServing : worker.state;
    const auto known = before.find(worker.name);
    states_[worker.name] = state;
    if (state == (known == before.end() ? kServing : known->second)) continue;
    LogLine line("worker",
                 state == "quarantined" ? LogLine::Level::kWarning : LogLine::Level::kInfo);
    line.add("name", worker.name).add("state", state);
    if (!worker.reason.empty()) line.add("reason", worker.reason);
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace kiln
