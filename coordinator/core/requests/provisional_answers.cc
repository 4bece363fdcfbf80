// CompileRequests's side of programs that are served while their successor is made: who takes one,
// and how the successor comes to be tuned though everybody is answered. It is queued like a program
// that was asked for with `detach`: durable, at the priority of warm-up, a few at once.
#include <algorithm>

#include "coordinator/core/mutation.h"
#include "coordinator/core/requests/compile_requests.h"

namespace kiln {

// A client that wants the program queued waits for nothing, and gets its place in the queue.
bool CompileRequests::takes_provisional(const CompileTask& task,
                                        const CompileTask::Waiter& waiter) {
  if (task.provisional.program_json.empty() || waiter.detach ||
      !task.provisional.audience.admits(waiter.viewer))
    return false;
  return !waiter.strict || mutated(Mutation::kServeStaleToStrict);
}

// Whether a graph that comes now may be tuned for the successor alone.
bool CompileRequests::may_replace(int64_t now_ms, const CompileTask& task) {
  return !detached_.contains(task.key) && !detached_.coming(task.key) &&
         !detached_.full(task.graph_user) && !crowded() &&
         !replacement_failures_.find(now_ms, task.key) && !mutated(Mutation::kNeverReplace);
}

void CompileRequests::serve(CompileTask& task, const RequestId& id, Actions& out) {
  CompileReply reply;
  reply.program_json = task.provisional.program_json;
  reply.stale = task.provisional.is_stale;
  ++hits_;
  send(task, id, std::move(reply), out);
}

void CompileRequests::serve_provisional(CompileTask& task, Actions& out) {
  std::vector<RequestId> takers;
  for (const auto& [id, waiter] : task.waiters)
    if (takes_provisional(task, waiter)) takers.push_back(id);
  for (const RequestId& id : takers) serve(task, id, out);
}

// Where the successor is to be tuned and nobody else will send the graph, one client waits until it
// was asked for it: one round trip.
void CompileRequests::serve_stale(int64_t now_ms, CompileTask& task, Actions& out) {
  if (task.provisional.program_json.empty()) return;
  task.is_replacing = !task.uploaded.empty() && may_replace(now_ms, task);
  std::vector<RequestId> takers;
  for (const auto& [id, waiter] : task.waiters)
    if (takes_provisional(task, waiter)) takers.push_back(id);
  const bool others_wait = takers.size() < task.waiters.size();
  const auto keeps = [&](const RequestId& id) { return !task.waiters.at(id).check_only; };
  if (task.uploaded.empty() && !others_wait && may_replace(now_ms, task))
    if (const auto kept = std::ranges::find_if(takers, keeps); kept != takers.end())
      takers.erase(kept);
  for (const RequestId& id : takers) serve(task, id, out);
}

}  // namespace kiln
