// CompileRequests's side of detached requests: the graph of a planned task is stored, then who
// asked so is answered `queued`; DetachedQueue says which stored tasks go on when.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "coordinator/core/mutation.h"
#include "coordinator/core/requests/compile_requests.h"

namespace kiln {
namespace {

constexpr char kTooManyQueued[] = "too many programs are queued already";
constexpr char kTooManyQueuedOfAUser[] =
    "as many programs are queued for this key as one key may have";

}  // namespace

Error CompileRequests::queue_is_full() {
  return overloaded(detached_.full("") ? kTooManyQueued : kTooManyQueuedOfAUser);
}

// True: answered at once, since it goes on already, or cannot.
bool CompileRequests::answer_detached(const RequestId& id, const std::string& user,
                                      const Digest& key, Actions& out) {
  const bool known = detached_.contains(key);
  if (!known && (!detached_.full(user) || detached_.coming(key))) return false;
  CompileReply reply;
  reply.request = id.second;
  reply.outcome = CacheOutcome::kQueued;
  if (!known) reply.outcome = fail(queue_is_full());
  out.push_back(Answer{id.first, std::move(reply)});
  return true;
}

bool CompileRequests::wanted(const CompileTask& task) {
  if (!task.waiters.empty() || task.saving || task.is_replacing || task.is_verifying) return true;
  if (mutated(Mutation::kUncountedDetached)) return detached_.contains(task.key);
  return detached_.keeps_running(task.key);
}

// The plan has shown that the graph has its digest, so the program can be queued: for clients that
// ask so, and to replace a stale one.
void CompileRequests::save_if_asked(int64_t now_ms, CompileTask& task, Actions& out) {
  if (task.stage != Stage::kTuning) return;
  if (task.saving || detached_.contains(task.key)) task.is_replacing = false;
  if (task.saving) return;
  const bool asked =
      task.is_replacing || std::any_of(task.waiters.begin(), task.waiters.end(),
                                       [](const auto& waiter) { return waiter.second.detach; });
  if (!asked) {
    if (!wanted(task)) end_unless_busy(task);
    return;
  }
  if (detached_.coming(task.key)) {  // an earlier task of the program began to
    task.saving = true;
  } else if (scheduler_.may_yet_come(now_ms,
                                     task.target)) {  // or never: then it would wait for good
    answer_queued(task, fail(overloaded("no worker for it has reported yet")), out);
  } else if (!scheduler_.expects(task.target)) {
    return;  // it fails at the next tick
  } else if (task.graph_text.empty()) {
    answer_queued(task, fail(overloaded("too many graphs are kept already")), out);
  } else if (detached_.full(task.graph_user) && !mutated(Mutation::kQueueWithoutBound)) {
    answer_queued(task, fail(queue_is_full()), out);
  } else {
    task.saving = true;
    detached_.expect(task.key, task.graph_user);
    const DetachedTask kept{task.graph, task.target, task.mode, task.audience, task.graph_user};
    out.push_back(StoreDetached{task.key, kept, task.graph_text});
  }
  task.is_replacing = false;
  if (!wanted(task)) end_unless_busy(task);
}

// Answers the requests with `detach`.
void CompileRequests::answer_queued(CompileTask& task, const Result<CacheOutcome>& outcome,
                                    Actions& out) {
  std::vector<RequestId> asked;
  for (const auto& [id, waiter] : task.waiters)
    if (waiter.detach) asked.push_back(id);
  for (const RequestId& id : asked) answer(task, id, outcome, {}, out);
}

// The task that is open now may be another one of the same program: `queued` is the right answer
// all the same.
void CompileRequests::detached_stored(int64_t now_ms, const DetachedStored& event, Actions& out) {
  if (!detached_.arrived(event.key)) return;
  CompileTask* task = find(event.key);
  if (event.status) detached_.add(event.task, task != nullptr);
  if (task == nullptr) return;
  const bool was_saving = std::exchange(task->saving, false);
  if (event.status) {
    drop_graph(*task);
    answer_queued(*task, CacheOutcome::kQueued, out);
  } else if (was_saving) {
    answer_queued(*task, fail(event.status.error().within("the queue cannot be stored")), out);
  }
  tenants_changed(*task);
  if (!wanted(*task)) return end_unless_busy(*task);
  if (event.status && task->stage == Stage::kWaitGraph)
    start_plan(now_ms, *task, {}, {}, out);  // the client that was asked need not send it
}

void CompileRequests::detached_recovered(const DetachedRecovered& event, Actions& out) {
  if (event.failure)
    detached_.recall_failure(event.task, *event.failure, out);
  else
    detached_.add(event.task, false);
}

void CompileRequests::cancel_detached(const Digest& program, Actions& out) {
  for (const Digest& key : detached_.cancel(program, out)) {
    CompileTask* task = find(key);
    if (task != nullptr && !wanted(*task)) end_unless_busy(*task);
  }
}

// Workers that went away with a kernel of a queued program in hand.
void CompileRequests::count_lost(int64_t now_ms, Actions& out) {
  for (const auto& [key, lost] : scheduler_.take_lost()) {
    const TuningTask* kernel = scheduler_.find(key);
    if (kernel == nullptr) continue;
    const auto programs = kernel->programs();
    for (const auto& [program, tenants] : programs) {
      const auto in_all = detached_.cost(program, lost, out);
      CompileTask* task = find(program);
      if (in_all && task != nullptr) fail_task(now_ms, *task, too_costly(*in_all), out);
    }
  }
}

Error CompileRequests::too_costly(int64_t lost) const {
  return {
      Code::kInternal,
      fmt::format("it has cost {} processes of workers, so it is not tried again: their logs say "
                  "how they ended. Queue it again once that is mended",
                  lost),
      0};
}

void CompileRequests::start_detached(int64_t now_ms, Actions& out) {
  const auto can_run = [this](const Target& target) {
    return scheduler_.check_target(target).has_value();
  };
  while (!crowded()) {  // begun it would only be put off
    const DetachedTask* next = detached_.start_next(now_ms, can_run);
    if (next == nullptr) return;
    const Digest key = detached_.key_of(*next);
    auto [entry, is_new] = tasks_.try_emplace(key);
    if (!is_new) continue;  // clients wait for it
    CompileTask& task = entry->second;
    task.key = key;
    task.program_key = next->program();
    task.audience = next->audience;
    task.graph_user = next->owner;
    task.graph = next->graph;
    task.target = next->target;
    task.mode = next->mode;
    task.started_ms = now_ms;
    out.push_back(LookUpProgram{key, task.program_key});
  }
}

}  // namespace kiln
