#include "client/cli/service.h"
#include "client/cli/session.h"

#include <algorithm>

namespace kiln::cli {
namespace {

constexpr auto kDeadline = std::chrono::seconds(10);

}  // namespace

Result<std::vector<Program>> served_programs(const Options& options, const Digest& graph,
                                             const Target& target) {
  TRY(const auto service, service_of(options));
  const auto deadline = Remote::Clock::now() + kDeadline;
  TRY(const Stats stats, service->stats(deadline));
  std::vector<Target> targets = {target};
  for (const WorkerStats& worker : stats.workers)
    if (std::ranges::find(targets, worker.target) == targets.end())
      targets.push_back(worker.target);
  const auto no_graph = [] { return std::string(); };  // a look-up is never asked for it
  std::vector<Program> programs;
  for (const Target& each : targets)
    for (const Mode mode : {Mode::kDefault, Mode::kMaxAutotune}) {
      CompileRequest request;
      request.graph = graph;
      request.target = each;
      request.mode = mode;
      request.check_only = true;
      TRY(auto answer, service->compile(request, no_graph, deadline));
      if (answer) programs.push_back(std::move(answer->program));
    }
  return programs;
}

}  // namespace kiln::cli
