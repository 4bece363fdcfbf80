// CompileRequests's side of a compile task that goes on: looked up, planned, tuned, stored,
// answered (compile_task.h has the diagram).
#include <algorithm>

#include "compiler_core/base/check.h"
#include "coordinator/core/mutation.h"
#include "coordinator/core/requests/compile_requests.h"
#include "coordinator/core/requests/partition_choice.h"
#include "coordinator/core/tuning/failures.h"

namespace kiln {
namespace {

constexpr int kMaxAsks = 3;  // each client, for one graph
constexpr char kTooManyOfAUser[] =
    "as many programs are tuned for this key as one key may have at once";
constexpr char kNotStoredYet[] = "it is tuned, and waits on this coordinator's disk for the store";

int64_t candidates_of(const PlanFinished& plan) {
  int64_t candidates = 0;
  for (const PlannedKernel& kernel : plan.kernels)
    candidates += kernel.cached ? 0 : std::ssize(kernel.schedules);
  return candidates;
}

// A compiler's words follow the first line; only the user whose graph it was gets them.
Error without_log(Error error) {
  const size_t end = error.message.find('\n');
  if (end == std::string::npos) return error;
  error.message.resize(end);
  error.message +=
      "\n(what the compiler said goes to whoever sent the graph: ask again, and it is "
      "yours that is compiled)";
  return error;
}

}  // namespace

void CompileRequests::looked_up(int64_t now_ms, const ProgramLookedUp& event, Actions& out) {
  CompileTask* task = find(event.key);
  if (task == nullptr || task->stage != Stage::kLookingUp) return;
  if (event.program_json.empty() || event.stale) return missed(now_ms, *task, event, out);
  std::vector<RequestId> admitted;
  for (const auto& [id, waiter] : task->waiters)
    if (event.audience.admits(waiter.viewer)) admitted.push_back(id);
  hits_ += std::ssize(admitted);
  for (const RequestId& id : admitted)
    answer(*task, id, CacheOutcome::kHit, event.program_json, out, event.memory_only);
  // It may be there for others alone: then it is a miss for whom this task is.
  if (event.audience.covers(task->audience))
    detached_.ended(now_ms, event.key,
                    event.memory_only ? fail(Code::kUnavailable, kNotStoredYet) : Status{}, out);
  else if (wanted(*task))
    return missed(now_ms, *task, event, out);
  end(*task);
}

void CompileRequests::missed(int64_t now_ms, CompileTask& task, const ProgramLookedUp& event,
                             Actions& out) {
  if (event.stale) task.provisional = {event.program_json, true, event.audience};
  std::vector<RequestId> checks;
  int64_t unserved = 0;
  for (const auto& [id, waiter] : task.waiters) {
    if (takes_provisional(task, waiter) || takes_tier0(task, waiter)) continue;
    ++unserved;
    if (waiter.check_only) checks.push_back(id);
  }
  for (const RequestId& id : checks)
    answer(task, id, fail(event.read ? not_cached(task.target) : event.read.error()), {}, out);
  serve_stale(now_ms, task, out);
  misses_ += std::ssize(checks);
  if (!wanted(task)) return end(task);
  const int64_t started = unserved - std::ssize(checks);
  if (started > 0 || task.provisional.program_json.empty()) ++misses_;
  joined_ += std::max<int64_t>(started - 1, 0);
  task.stage = Stage::kWaitGraph;
  // Known to whom it is not for, the difference would tell that it is there.
  const bool replaceable = event.stale && event.audience.covers(task.audience);
  if (const Status possible = scheduler_.check_target(task.target);
      !possible && !replaceable && !scheduler_.may_yet_come(now_ms, task.target))
    return fail_task(now_ms, task, possible.error(), out);
  if (crowded()) return fail_crowded(now_ms, task, out);
  if (detached_.contains(task.key)) return start_plan(now_ms, task, {}, {}, out);
  if (task.uploaded.empty()) return ask_for_graph(now_ms, task, out);
  start_plan(now_ms, task, task.uploader, std::move(task.uploaded), out);
}

bool CompileRequests::may_begin(const std::string& user) const {
  return user.empty() || loads_.tasks_of(user) < options_.max_tasks_a_user ||
         mutated(Mutation::kNoTenantBound);
}

// A user has no more candidates than are left for the others; they count until their program ends.
std::optional<Error> CompileRequests::user_crowded(const CompileTask& task, int64_t candidates) {
  const int64_t theirs = loads_.candidates_of(task.graph_user);
  const int64_t left = options_.max_candidates_queued - scheduler_.candidates_queued();
  if (theirs > 0 && theirs + candidates > left)
    return overloaded("as many candidates wait for this key as one key may have at once");
  loads_.add_candidates(task.key, candidates);
  return {};
}

// Checked at every step towards new candidates: many programs may pass one check before the first
// of them has its candidates.
bool CompileRequests::crowded() const {
  return scheduler_.candidates_queued() >= options_.max_candidates_queued;
}

void CompileRequests::fail_crowded(int64_t now_ms, CompileTask& task, Actions& out) {
  fail_task(now_ms, task, overloaded("too many candidates wait for workers"), out);
}

// Asks the next waiting client after the one asked last, so that one that never answers is passed
// over, and in the end refused.
void CompileRequests::ask_for_graph(int64_t now_ms, CompileTask& task, Actions& out) {
  while (!task.waiters.empty()) {
    auto next = task.asked ? task.waiters.upper_bound(*task.asked) : task.waiters.begin();
    if (next == task.waiters.end()) next = task.waiters.begin();
    const RequestId id = next->first;
    task.asked = id;
    task.asked_ms = now_ms;
    graphs_due_.add(now_ms + options_.graph_timeout_ms, task.key);
    const bool is_served = takes_provisional(task, next->second);
    if (++next->second.times_asked <= (is_served ? 1 : kMaxAsks)) {
      out.push_back(AskForGraph{id.first, id.second});
      return;
    }
    if (is_served)
      serve(task, id, out);
    else
      answer(task, id, fail(Code::kDeadlineExceeded, "the graph was asked for and never came"), {},
             out);
  }
  end(task);
}

// Without an uploader the text is empty: the planner takes the stored task's.
void CompileRequests::start_plan(int64_t now_ms, CompileTask& task,
                                 const std::optional<RequestId>& uploader, std::string text,
                                 Actions& out) {
  if (crowded() && !mutated(Mutation::kBoundOnlyOnMiss)) return fail_crowded(now_ms, task, out);
  task.stage = Stage::kPlanning;
  task.asked.reset();
  task.uploader = uploader;
  if (const DetachedTask* stored = detached_.find(task.key); !uploader && stored != nullptr)
    task.graph_user = stored->owner;
  else if (uploader && task.waiters.contains(*uploader))
    task.graph_user = task.waiters.at(*uploader).viewer.user;
  if (uploader && !task.provisional.program_json.empty()) task.is_replacing = true;
  serve_provisional(task, out);
  serve_tier0(now_ms, task, uploader, text, out);
  if (!may_begin(task.graph_user)) return fail_task(now_ms, task, overloaded(kTooManyOfAUser), out);
  loads_.add_task(task.key, task.graph_user);
  keep_graph(task, text);
  if (uploader && task.graph_text.empty()) {
    task.is_replacing = false;
    answer_queued(task, fail(overloaded("too many graphs are kept already")), out);
    if (!wanted(task)) return end(task);
  }
  task.plan_ticket = scheduler_.plan_started();
  out.push_back(
      StartPlan{task.key, task.graph, task.target, task.mode, std::move(text), task.audience});
}

// For clients that will ask with `detach`, as far as there is room.
void CompileRequests::keep_graph(CompileTask& task, const std::string& text) {
  drop_graph(task);
  const auto bytes = static_cast<int64_t>(text.size());
  if (graph_bytes_ + bytes > options_.max_graph_bytes_kept) return;
  graph_bytes_ += bytes;
  task.graph_text = text;
}

void CompileRequests::drop_graph(CompileTask& task) {
  graph_bytes_ -= static_cast<int64_t>(task.graph_text.size());
  task.graph_text = {};
}

void CompileRequests::plan_finished(int64_t now_ms, PlanFinished event, Actions& out) {
  CompileTask* task = find(event.key);
  if (task == nullptr || task->stage != Stage::kPlanning) return;
  // The ticket is given back last: until then the scheduler keeps what the plan may not know.
  const uint64_t ticket = task->plan_ticket;
  if (!wanted(*task))
    end(*task);
  else if (taking_back_ > 0 || task->is_doomed)
    fail_doomed(now_ms, *task, out);
  else if (!event.program)
    plan_failed(now_ms, *task, event.program.error(), out);
  else
    start_tuning(now_ms, *task, std::move(event), out);
  scheduler_.plan_finished(ticket);
}

void CompileRequests::plan_failed(int64_t now_ms, CompileTask& task, const Error& error,
                                  Actions& out) {
  if (error.code != Code::kInvalidArgument) return fail_task(now_ms, task, error, out);
  // The graph does not have its digest: only the client that sent it is to blame.
  drop_graph(task);
  const auto uploader = task.uploader;
  if (!uploader) detached_.ended(now_ms, task.key, fail(error), out);  // it was the stored one
  if (mutated(Mutation::kBlameEveryone)) return fail_task(now_ms, task, error, out);
  if (uploader && task.waiters.contains(*uploader)) answer(task, *uploader, fail(error), {}, out);
  if (!wanted(task)) return end(task);
  task.stage = Stage::kWaitGraph;
  if (detached_.contains(task.key)) return start_plan(now_ms, task, {}, {}, out);
  ask_for_graph(now_ms, task, out);
}

void CompileRequests::start_tuning(int64_t now_ms, CompileTask& task, PlanFinished event,
                                   Actions& out) {
  const bool tunes = std::ranges::any_of(event.kernels, [](const auto& k) { return !k.cached; });
  if (tunes && crowded() && !mutated(Mutation::kBoundOnlyOnMiss))
    return fail_crowded(now_ms, task, out);
  if (const auto error = user_crowded(task, candidates_of(event)))
    return fail_task(now_ms, task, *error, out);
  task.stage = Stage::kTuning;
  task.program = *std::move(event.program);
  task.program.kernels.clear();
  task.alternatives = std::move(event.alternatives);
  progress_due_.add(now_ms, task.key);
  for (const PlannedKernel& planned : event.kernels) {
    ProgramKernel kernel;
    kernel.key = planned.key;
    task.program.kernels.push_back(planned.cached.value_or(kernel));
    if (!planned.cached) task.pending.push_back(planned.key);
  }
  const Tenants tenants = tenants_of(task);
  for (PlannedKernel& planned : event.kernels)
    if (!planned.cached)
      scheduler_.need(now_ms, task.key, std::move(planned), tenants, task.target, task.mode, out);
  if (task.pending.empty()) return kernels_done(now_ms, task, out);
  await_builds(task);
  answer_early(now_ms, task, out);
  save_if_asked(now_ms, task, out);
}

void CompileRequests::kernels_settled(int64_t now_ms, Actions& out) {
  count_lost(now_ms, out);
  kernels_built(now_ms, out);
  for (const Digest& key : scheduler_.take_settled()) {
    const TuningTask* kernel = scheduler_.find(key);
    if (kernel == nullptr) continue;
    const auto programs = kernel->programs();  // releasing them changes it, and may end the task
    for (const auto& [program, tenants] : programs) {
      CompileTask* task = find(program);
      CHECK(task != nullptr, "a tuning task's programs are open");
      kernel_settled(now_ms, *task, *kernel, out);
    }
  }
}

void CompileRequests::kernel_settled(int64_t now_ms, CompileTask& task, const TuningTask& kernel,
                                     Actions& out) {
  const Digest key = kernel.key();
  if (kernel.stage() == TuningTask::Stage::kFailed) {
    task.failed.push_back(key);
    if (!has_partition_without(task.failed, task.program, task.alternatives)) {
      Error error = kernel.error();
      if (const auto lost = detached_.cost(task.key, kernel.lost(), out))
        return fail_task(now_ms, task, too_costly(*lost), out);
      // Not for good, however this one failed: another partition may do.
      if (!task.untried.empty()) error.code = Code::kUnavailable;
      return fail_task(now_ms, task, error, out);
    }
    if (failure_class(kernel.error().code) == FailureClass::kTransient)
      task.untried = "an alternative partition was not tuned";
  } else {
    for (ProgramKernel& slot : task.program.kernels)
      if (slot.key == key) slot = kernel.winner();
    if (!kernel.stored()) task.unstored.push_back(key);
    if (kernel.left_out())
      task.untried = "candidates were left out whose template no worker has at this version";
  }
  std::erase(task.pending, key);
  task.unbuilt.erase(key);
  scheduler_.release(task.key, key);
  if (task.pending.empty()) return kernels_done(now_ms, task, out);
  answer_early(now_ms, task, out);
}

void CompileRequests::kernels_done(int64_t now_ms, CompileTask& task, Actions& out) {
  if (!task.withdrawing.empty()) return;  // kernel_withdrawn() gives it the serial that it needs
  task.stage = Stage::kStoring;
  task.program =
      fastest_partition(task.failed, std::move(task.program), std::move(task.alternatives));
  task.program_json = program_to_json(task.program);
  // The program is answered, since it works, but not stored: that would fix the choice for good.
  if (!task.untried.empty() && !mutated(Mutation::kChooseTooEarly))
    return finish(now_ms, task, fail(Code::kUnavailable, task.untried), out);
  // A program whose kernels are not all stored would be found again without its binaries.
  const bool all_stored =
      std::ranges::none_of(task.program.kernels, [&](const ProgramKernel& kernel) {
        return std::ranges::find(task.unstored, kernel.key) != task.unstored.end();
      });
  if (!all_stored && !mutated(Mutation::kStoreWithoutKernels))
    return finish(now_ms, task, fail(Code::kUnavailable, "a kernel could not be stored"), out);
  out.push_back(StoreProgram{std::move(task.program), task.key, task.audience});
}

void CompileRequests::program_stored(int64_t now_ms, const ProgramStored& event, Actions& out) {
  CompileTask* task = find(event.key);
  if (task == nullptr || task->stage != Stage::kStoring) return;
  if (!event.status) ++store_failures_;
  if (task->is_doomed) return fail_doomed(now_ms, *task, out);
  Status stored = event.status;  // a store that failed may work again later
  if (!stored) stored.error().code = Code::kUnavailable;
  finish(now_ms, *task, stored, out);
}

void CompileRequests::finish(int64_t now_ms, CompileTask& task, const Status& stored,
                             Actions& out) {
  while (!task.waiters.empty()) {
    const RequestId id = task.waiters.begin()->first;
    answer(task, id, id == task.starter ? CacheOutcome::kTuned : CacheOutcome::kJoined,
           task.program_json, out, !stored.has_value() && !mutated(Mutation::kCallItStored));
  }
  if (!stored) out.push_back(KeepProgram{task.program_json, task.key, task.audience});
  detached_.ended(now_ms, task.key, stored, out);
  end(task);
}

void CompileRequests::fail_task(int64_t now_ms, CompileTask& task, const Error& error,
                                Actions& out) {
  serve_provisional(task, out);
  serve_tier0(now_ms, task, {}, {}, out);
  // Failures of the program itself last; an absent worker or store does not.
  const bool is_replacement = !task.provisional.program_json.empty();
  if (is_replacement)
    replacement_failures_.remember(now_ms, task.key, without_log(error));
  else if (failure_class(error.code) == FailureClass::kTerminal)
    failures_.remember(now_ms, failure_key(task.key, task.graph_user), error);
  while (!task.waiters.empty()) {
    const auto& [id, waiter] = *task.waiters.begin();
    const bool is_theirs = waiter.viewer.user == task.graph_user;
    answer(task, RequestId(id), fail(is_theirs ? error : without_log(error)), {}, out);
  }
  detached_.ended(now_ms, task.key, fail(error), out);
  end(task);
}

}  // namespace kiln
