#include "coordinator/core/requests/compile_requests.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/base/check.h"
#include "coordinator/core/mutation.h"

namespace kiln {
namespace {

Answer refusal(const RequestId& id, Error error) {
  CompileReply reply;
  reply.request = id.second;
  reply.outcome = fail(std::move(error));
  return Answer{id.first, std::move(reply)};
}

CompileTask::Waiter waiter_of(const CompileRequest& request, const Viewer& viewer) {
  const bool waits = !request.check_only && !request.detach;
  return {request.check_only,
          request.detach,
          request.priority,
          request.strict,
          request.early,
          viewer,
          0,
          request.now && waits && request.mode == Mode::kMaxAutotune};
}

constexpr int64_t kProgressATick = 128;         // messages; the others' turn comes in later ticks
constexpr char kDetachedTenant[] = "detached";  // of work that no client of this incarnation began

}  // namespace

CompileTask* CompileRequests::find(const Digest& key) {
  const auto found = tasks_.find(key);
  return found == tasks_.end() ? nullptr : &found->second;
}

// Why a program failed is remembered for the user whose graph it was: another one sends its own.
Digest CompileRequests::failure_key(const Digest& task, const std::string& user) {
  return user.empty() ? task : Hasher("kiln.failure.v1").add(task).add(user).finish();
}

// ---- Requests come and go ----

void CompileRequests::request(int64_t now_ms, RequestReceived event, Actions& out) {
  CompileRequest& request = event.request;
  const RequestId id{event.client, request.request};
  if (open_.find(id) != nullptr) return repeated(now_ms, id, std::move(request), out);
  const TenantId tenant = event.user.empty() ? "connection " + event.client : "user " + event.user;
  const Digest program =
      event.key ? *event.key : program_key(request.graph, request.target, request.mode);
  const Digest key = task_key(program, event.audience);
  event.viewer.user = event.user;
  CompileTask fresh;
  fresh.key = key;
  fresh.program_key = program;
  fresh.audience = std::move(event.audience);
  fresh.graph = request.graph;
  fresh.target = request.target;
  fresh.mode = request.mode;
  fresh.started_ms = now_ms;
  const CompileTask::Waiter waiter = waiter_of(request, event.viewer);
  const bool is_hopeless =
      waiter.now && failures_.find(now_ms, failure_key(key, event.user)).has_value();
  if (is_hopeless) fresh = tier0_of(now_ms, fresh);
  if (refuse(now_ms, id, tenant, fresh.key, request, event.user, out)) return;
  if (request.detach && answer_detached(id, event.user, key, out)) return;
  open_.add(id, tenant, fresh.key);
  enter(now_ms, id, std::move(fresh), waiter, std::move(request.graph_text), out);
}

void CompileRequests::enter(int64_t now_ms, const RequestId& id, CompileTask fresh,
                            CompileTask::Waiter waiter, std::string graph_text, Actions& out) {
  const Digest key = fresh.key;
  auto [entry, is_new] = tasks_.try_emplace(key, std::move(fresh));
  CompileTask& task = entry->second;
  if (!is_new) return join(now_ms, id, task, std::move(waiter), std::move(graph_text), out);
  await_look_up(id, task, std::move(waiter), std::move(graph_text));
  out.push_back(LookUpProgram{key, task.program_key});
}

Error CompileRequests::overloaded(std::string what) {
  ++overloaded_;
  return {Code::kOverloaded, std::move(what), options_.retry_after_ms};
}

Error CompileRequests::not_cached(const Target& target) const {
  if (!names_no_device(target)) return {Code::kNotFound, "the program is not in the cache", 0};
  return {
      Code::kNotFound,
      fmt::format("the program is not in the cache for '{}' as it stands: programs are made for "
                  "a device, this names none, and no worker that could say which is meant is "
                  "connected (those there are have: {}); ask while one is, or from a machine "
                  "with such a GPU",
                  describe(target), scheduler_.targets()),
      0};
}

bool CompileRequests::refuse(int64_t now_ms, const RequestId& id, const TenantId& tenant,
                             const Digest& key, const CompileRequest& request,
                             const std::string& user, Actions& out) {
  if (open_.full(tenant)) {
    out.push_back(refusal(id, overloaded("too many requests are waiting")));
    return true;
  }
  // Under this key the program would be tuned for no particular device.
  if (names_no_device(request.target) && scheduler_.may_yet_come(now_ms, request.target)) {
    out.push_back(refusal(
        id, overloaded(fmt::format("the coordinator has just begun, and no worker has reported yet "
                                   "that could say which device '{}' means",
                                   describe(request.target)))));
    return true;
  }
  auto known = failures_.find(now_ms, failure_key(key, user));
  if (!known && request.strict) known = replacement_failures_.find(now_ms, key);
  if (known) out.push_back(refusal(id, request.check_only ? not_cached(request.target) : *known));
  return known.has_value();
}

// On whose behalf its kernels are tuned.
Tenants CompileRequests::tenants_of(const CompileTask& task) const {
  Tenants tenants;
  for (const auto& [id, waiter] : task.waiters)
    if (!waiter.check_only) add_tenant(tenants, open_.tenant_of(id.first), waiter.priority);
  if (tenants.empty()) tenants.emplace(kDetachedTenant, Priority::kWarmUp);
  return tenants;
}

void CompileRequests::tenants_changed(const CompileTask& task) {
  if (task.stage != Stage::kTuning) return;
  const Tenants tenants = tenants_of(task);
  for (const Digest& kernel : task.pending) scheduler_.set_tenants(task.key, kernel, tenants);
}

void CompileRequests::join(int64_t now_ms, const RequestId& id, CompileTask& task,
                           CompileTask::Waiter waiter, std::string graph_text, Actions& out) {
  if (task.stage == Stage::kLookingUp)
    return await_look_up(id, task, std::move(waiter), std::move(graph_text));
  const bool is_detached = waiter.detach;
  task.waiters[id] = std::move(waiter);
  if (takes_provisional(task, task.waiters[id])) return serve(task, id, out);
  if (task.waiters[id].check_only) return answer(task, id, fail(not_cached(task.target)), {}, out);
  if (task.stage != Stage::kWaitGraph && takes_tier0(task, task.waiters[id])) {
    serve_tier0(now_ms, task, id, graph_text, out);
    return save_if_asked(now_ms, task, out);
  }
  ++joined_;
  if (takes_early(task.waiters[id])) {
    answer_early(now_ms, task, out);
    if (!task.waiters.contains(id)) return;
  }
  tenants_changed(task);
  if (task.stage == Stage::kWaitGraph && !graph_text.empty())
    return start_plan(now_ms, task, id, std::move(graph_text), out);
  if (is_detached) save_if_asked(now_ms, task, out);
}

void CompileRequests::await_look_up(const RequestId& id, CompileTask& task,
                                    CompileTask::Waiter waiter, std::string graph_text) {
  if (!waiter.check_only && !task.starter) task.starter = id;
  if (!graph_text.empty() && task.uploaded.empty()) {
    task.uploaded = std::move(graph_text);
    task.uploader = id;
    task.graph_user = waiter.viewer.user;
  }
  task.waiters[id] = std::move(waiter);
}

// The same request again: the graph that we asked for, or a repetition because something was lost.
void CompileRequests::repeated(int64_t now_ms, const RequestId& id, CompileRequest request,
                               Actions& out) {
  CompileTask* task = find(*open_.find(id));
  CHECK(task != nullptr, "an open request waits for a task");
  if (task->graph != request.graph) return;  // another question under a number in use
  if (task->stage == Stage::kLookingUp)
    return await_look_up(id, *task, CompileTask::Waiter(task->waiters.at(id)),
                         std::move(request.graph_text));
  if (task->stage != Stage::kWaitGraph) return;
  if (!request.graph_text.empty())
    start_plan(now_ms, *task, id, std::move(request.graph_text), out);
  else if (task->asked == id)
    out.push_back(AskForGraph{id.first, id.second});
}

void CompileRequests::cancel(int64_t now_ms, const RequestId& request, Actions& out) {
  if (open_.find(request) != nullptr) withdraw(now_ms, {request}, out);
}

void CompileRequests::client_gone(int64_t now_ms, const ClientId& client, Actions& out) {
  withdraw(now_ms, open_.of_client(client), out);
}

// Removes all requests before anything follows from it: otherwise one of them could be asked for
// the graph, or answered, after another has gone.
void CompileRequests::withdraw(int64_t now_ms, const std::vector<RequestId>& ids, Actions& out) {
  std::vector<std::pair<Digest, RequestId>> left;
  for (const RequestId& id : ids) {
    CompileTask* task = find(*open_.find(id));
    CHECK(task != nullptr, "an open request waits for a task");
    open_.remove(id);
    task->waiters.erase(id);
    left.emplace_back(task->key, id);
  }
  for (const auto& [key, id] : left) {
    CompileTask* task = find(key);
    if (task == nullptr) continue;
    if (!wanted(*task))
      end_unless_busy(*task);
    else if (task->stage == Stage::kWaitGraph && task->asked == id)
      ask_for_graph(now_ms, *task, out);
    else
      tenants_changed(*task);
  }
}

void CompileRequests::end_unless_busy(CompileTask& task) {
  // The store or a planner is at it: its event ends the task, unless somebody joined meanwhile.
  if (task.stage == Stage::kLookingUp || task.stage == Stage::kPlanning ||
      task.stage == Stage::kStoring)
    return;
  end(task);
}

void CompileRequests::end(CompileTask& task) {
  CHECK(task.waiters.empty(), "a task ends when all who waited are answered or gone");
  const Digest key = task.key;
  const auto pending = std::move(task.pending);
  drop_graph(task);
  loads_.remove(key);
  tasks_.erase(key);
  for (const Digest& kernel : pending) scheduler_.release(key, kernel);
  // Whatever ended the task, a queued program goes on: it waits for its turn again.
  if (!mutated(Mutation::kForgetQueued)) detached_.postpone(key);
}

void CompileRequests::answer(CompileTask& task, const RequestId& id, Result<CacheOutcome> outcome,
                             const std::string& program_json, Actions& out, bool memory_only) {
  CompileReply reply;
  reply.outcome = std::move(outcome);
  reply.program_json = program_json;
  reply.memory_only = memory_only;
  send(task, id, std::move(reply), out);
}

void CompileRequests::send(CompileTask& task, const RequestId& id, CompileReply reply, Actions& out,
                           bool is_early) {
  reply.request = id.second;
  reply.tier0 = task.mode == Mode::kDefault && task.waiters.at(id).now && reply.outcome &&
                !mutated(Mutation::kHideTier0);
  answered_tier0_ += reply.tier0 ? 1 : 0;
  if (id == task.starter || !mutated(Mutation::kForgetJoiner))
    out.push_back(Answer{id.first, std::move(reply), is_early});
  task.waiters.erase(id);
  open_.remove(id);
}

// ---- Time passes ----

void CompileRequests::tick(int64_t now_ms, Actions& out) {
  while (const auto key = graphs_due_.take(now_ms)) {
    CompileTask* task = find(*key);
    if (task == nullptr || task->stage != Stage::kWaitGraph) continue;
    if (now_ms - task->asked_ms >= options_.graph_timeout_ms) ask_for_graph(now_ms, *task, out);
  }
  for (int64_t sent = 0; sent < kProgressATick;) {
    const auto key = progress_due_.take(now_ms);
    if (!key) break;
    CompileTask* task = find(*key);
    if (task == nullptr || task->stage != Stage::kTuning) continue;
    if (const int64_t due_ms = task->progress_ms + options_.progress_interval_ms; now_ms < due_ms) {
      progress_due_.add(due_ms, *key);
      continue;
    }
    send_progress(now_ms, *task, out);
    sent += std::max<int64_t>(std::ssize(task->waiters), 1);
  }
  start_detached(now_ms, out);
}

void CompileRequests::send_progress(int64_t now_ms, CompileTask& task, Actions& out) {
  Progress progress;
  progress.kernels = static_cast<int>(task.program.kernels.size());
  progress.kernels_done = progress.kernels - static_cast<int>(task.pending.size());
  for (const ProgramKernel& kernel : task.program.kernels) {
    if (const TuningTask* tuning = scheduler_.find(kernel.key); tuning != nullptr) {
      progress.candidates += tuning->candidates().size();
      progress.candidates_done += tuning->candidates().settled();
    } else {
      progress.candidates += kernel.report.candidates;
      progress.candidates_done += kernel.report.candidates;
    }
  }
  progress.waiting = scheduler_.waiting_for(task.program.target);
  progress.elapsed_s = static_cast<double>(now_ms - task.started_ms) / 1000;
  for (const auto& [id, waiter] : task.waiters) {
    progress.request = id.second;
    out.push_back(SendProgress{id.first, progress});
  }
  task.progress_ms = now_ms;
  progress_due_.add(now_ms + options_.progress_interval_ms, task.key);
}

void CompileRequests::add_stats(Stats& stats, const Viewer& viewer) const {
  stats.hits += hits_;
  stats.misses += misses_;
  stats.joined += joined_;
  stats.answered_early += answered_early_;
  stats.answered_tier0 += answered_tier0_;
  stats.flights_open += std::ssize(tasks_);
  stats.store_failures += store_failures_;
  stats.requests_open += open_.count();
  stats.overloaded += overloaded_;
  detached_.add_stats(stats, viewer);
}

}  // namespace kiln
