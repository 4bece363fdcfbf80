// CompileRequests's side of requests with `now`: a max-autotune program that is not tuned yet is
// answered with tier 0, the `default` program of the same graph and target. That one has a task of
// its own, so that it is looked up, built, answered early, verified and withdrawn as for those who
// ask for it by name. The max-autotune task goes on though nobody waits, queued like the successor of
// a stale program (provisional_answers.cc).
//
//   looked up --hit, or stale--> answered with it
//       | a plan begins, is made already, or cannot begin (serve_tier0)
//       v
//   waits for the `default` task --answered, marked tier0
#include "coordinator/core/mutation.h"
#include "coordinator/core/requests/compile_requests.h"

namespace kiln {

// Under the default program's key and for the same audience, whose tasks are shared.
CompileTask CompileRequests::tier0_of(int64_t now_ms, const CompileTask& task) {
  CompileTask tier0;
  tier0.program_key = program_key(task.graph, task.target, Mode::kDefault);
  tier0.key = task_key(tier0.program_key, task.audience);
  tier0.audience = task.audience;
  tier0.graph = task.graph;
  tier0.target = task.target;
  tier0.mode = Mode::kDefault;
  tier0.started_ms = now_ms;
  return tier0;
}

bool CompileRequests::takes_tier0(const CompileTask& task, const CompileTask::Waiter& waiter) {
  if (task.mode != Mode::kMaxAutotune || mutated(Mutation::kWaitForTuned)) return false;
  if (mutated(Mutation::kTier0ToAll)) return !waiter.check_only && !waiter.detach;
  return waiter.now;
}

// `graph_text` is of `sender`, who is not asked for it again, and alone to blame for it.
void CompileRequests::serve_tier0(int64_t now_ms, CompileTask& task,
                                  const std::optional<RequestId>& sender,
                                  const std::string& graph_text, Actions& out) {
  std::vector<RequestId> takers;
  for (const auto& [id, waiter] : task.waiters)
    if (takes_tier0(task, waiter)) takers.push_back(id);
  if (takers.empty()) return;
  if (!mutated(Mutation::kForgetTuned)) task.is_replacing = true;
  const CompileTask tier0 = tier0_of(now_ms, task);
  for (const RequestId& id : takers) {
    CompileTask::Waiter waiter = task.waiters.at(id);
    waiter.now = true;
    waiter.times_asked = 0;
    task.waiters.erase(id);
    open_.move(id, tier0.key);
    enter(now_ms, id, tier0, std::move(waiter), id == sender ? graph_text : std::string(), out);
  }
  tenants_changed(task);
}

}  // namespace kiln
