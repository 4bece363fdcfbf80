#include "coordinator/core/request_desk.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/base/check.h"
#include "coordinator/core/failure_class.h"
#include "coordinator/core/partition_choice.h"
#include "coordinator/core/planted.h"

namespace kiln {
namespace {

Answer refusal(const RequestId& id, Error error) {
  CompileReply reply;
  reply.request = id.second;
  reply.outcome = fail(std::move(error));
  return Answer{id.first, std::move(reply)};
}

constexpr int kMaxAsks = 3;                    // each client, for one graph
constexpr int64_t kProgressATick = 128;        // messages; the others' turn comes in later ticks
constexpr char kDetachedShare[] = "detached";  // of work that no client of this life began

Error not_cached() {
  return Error{Code::kNotFound, "the program is not in the cache", 0};
}

}  // namespace

ProgramFlight* RequestDesk::find(const Digest& key) {
  const auto found = flights_.find(key);
  return found == flights_.end() ? nullptr : &found->second;
}

// ---- Requests come and go ----

void RequestDesk::request(int64_t now_ms, const ClientId& client, const std::string& user,
                          CompileRequest request, Actions& out) {
  const RequestId id{client, request.request};
  if (open_.find(id) != nullptr) return repeated(id, std::move(request), out);
  const ShareId share = user.empty() ? "connection " + client : "user " + user;
  request.target = floor_.resolve(request.target);
  const Digest key = program_key(request.graph, request.target, request.mode, options_.codegen);
  if (refuse(now_ms, id, share, key, request.check_only, out)) return;
  if (request.detach && answer_detached(id, key, out)) return;

  open_.add(id, share, key);
  auto [entry, is_new] = flights_.try_emplace(key);
  ProgramFlight& flight = entry->second;
  if (!is_new) return join(id, flight, std::move(request), out);
  flight.key = key;
  flight.graph = request.graph;
  flight.target = request.target;
  flight.mode = request.mode;
  flight.started_ms = now_ms;
  await_look_up(id, flight, std::move(request));
  out.push_back(LookUpProgram{key});
}

Error RequestDesk::overloaded(const char* what) {
  ++overloaded_;
  return {Code::kOverloaded, what, options_.retry_after_ms};
}

bool RequestDesk::refuse(int64_t now_ms, const RequestId& id, const ShareId& share,
                         const Digest& key, bool check_only, Actions& out) {
  if (open_.full(share)) {
    out.push_back(refusal(id, overloaded("too many requests are waiting")));
    return true;
  }
  const auto known = failures_.find(now_ms, key);
  if (known) out.push_back(refusal(id, check_only ? not_cached() : *known));
  return known.has_value();
}

// On whose behalf its kernels are tuned.
Demand RequestDesk::demand_of(const ProgramFlight& flight) const {
  Demand demand;
  for (const auto& [id, waiter] : flight.waiters)
    if (!waiter.check_only) add_demand(demand, open_.share_of(id.first), waiter.priority);
  if (demand.empty()) demand.emplace(kDetachedShare, Priority::kWarmUp);
  return demand;
}

void RequestDesk::demand_changed(const ProgramFlight& flight) {
  if (flight.stage != Stage::kTuning) return;
  const Demand demand = demand_of(flight);
  for (const Digest& kernel : flight.pending) floor_.set_demand(flight.key, kernel, demand);
}

void RequestDesk::join(const RequestId& id, ProgramFlight& flight, CompileRequest request,
                       Actions& out) {
  if (flight.stage == Stage::kLookingUp) return await_look_up(id, flight, std::move(request));
  flight.waiters[id] = {request.check_only, request.detach, request.priority};
  if (request.check_only) return answer(flight, id, fail(not_cached()), {}, out);
  ++joined_;
  demand_changed(flight);
  if (request.detach) save_if_asked(flight, out);
  if (flight.stage == Stage::kWaitGraph && !request.graph_text.empty())
    start_plan(flight, id, std::move(request.graph_text), out);
}

void RequestDesk::await_look_up(const RequestId& id, ProgramFlight& flight,
                                CompileRequest request) {
  flight.waiters[id] = {request.check_only, request.detach, request.priority};
  if (!request.check_only && !flight.starter) flight.starter = id;
  if (request.graph_text.empty() || !flight.graph_text.empty()) return;
  flight.graph_text = std::move(request.graph_text);
  flight.uploader = id;
}

// The same request again: the graph that we asked for, or a repetition because something was lost.
void RequestDesk::repeated(const RequestId& id, CompileRequest request, Actions& out) {
  ProgramFlight* flight = find(*open_.find(id));
  CHECK(flight != nullptr, "an open request waits for a flight");
  if (flight->graph != request.graph) return;  // another question under a number in use
  if (flight->stage == Stage::kLookingUp) return await_look_up(id, *flight, std::move(request));
  if (flight->stage != Stage::kWaitGraph) return;
  if (!request.graph_text.empty())
    start_plan(*flight, id, std::move(request.graph_text), out);
  else if (flight->asked == id)
    out.push_back(AskForGraph{id.first, id.second});
}

void RequestDesk::cancel(int64_t now_ms, const RequestId& request, Actions& out) {
  if (open_.find(request) != nullptr) withdraw(now_ms, {request}, out);
}

void RequestDesk::client_gone(int64_t now_ms, const ClientId& client, Actions& out) {
  withdraw(now_ms, open_.of_client(client), out);
}

// All of them before anything follows from it: none may be asked, or answered, in another's place.
void RequestDesk::withdraw(int64_t now_ms, const std::vector<RequestId>& ids, Actions& out) {
  std::vector<std::pair<Digest, RequestId>> left;
  for (const RequestId& id : ids) {
    ProgramFlight* flight = find(*open_.find(id));
    CHECK(flight != nullptr, "an open request waits for a flight");
    open_.remove(id);
    flight->waiters.erase(id);
    left.emplace_back(flight->key, id);
  }
  for (const auto& [key, id] : left) {
    ProgramFlight* flight = find(key);
    if (flight == nullptr) continue;
    if (!wanted(*flight))
      abandon(*flight);
    else if (flight->stage == Stage::kWaitGraph && flight->asked == id)
      ask_for_graph(now_ms, *flight, out);
    else
      demand_changed(*flight);
  }
}

void RequestDesk::abandon(ProgramFlight& flight) {
  // The store or a planner is at it: its event ends the flight, unless somebody joined meanwhile.
  if (flight.stage == Stage::kLookingUp || flight.stage == Stage::kPlanning ||
      flight.stage == Stage::kStoring)
    return;
  end(flight);
}

void RequestDesk::end(ProgramFlight& flight) {
  CHECK(flight.waiters.empty(), "a flight ends when all who waited are answered or gone");
  const Digest key = flight.key;
  const auto pending = std::move(flight.pending);
  flights_.erase(key);
  for (const Digest& kernel : pending) floor_.release(key, kernel);
}

void RequestDesk::answer(ProgramFlight& flight, const RequestId& id, Result<CacheOutcome> outcome,
                         const std::string& program_json, Actions& out, bool memory_only) {
  CompileReply reply;
  reply.request = id.second;
  reply.outcome = std::move(outcome);
  reply.program_json = program_json;
  reply.memory_only = memory_only;
  if (id == flight.starter || !planted(PlantedBug::kForgetJoiner))
    out.push_back(Answer{id.first, std::move(reply)});
  flight.waiters.erase(id);
  open_.remove(id);
}

// ---- A flight goes on ----

void RequestDesk::looked_up(int64_t now_ms, const ProgramLookedUp& event, Actions& out) {
  ProgramFlight* flight = find(event.key);
  if (flight == nullptr || flight->stage != Stage::kLookingUp) return;
  if (event.program_json.empty()) return missed(now_ms, *flight, out);
  hits_ += std::ssize(flight->waiters);
  while (!flight->waiters.empty())
    answer(*flight, RequestId(flight->waiters.begin()->first), CacheOutcome::kHit,
           event.program_json, out);
  detached_.ended(now_ms, event.key, {}, out);
  end(*flight);
}

void RequestDesk::missed(int64_t now_ms, ProgramFlight& flight, Actions& out) {
  std::vector<RequestId> checks;
  for (const auto& [id, waiter] : flight.waiters)
    if (waiter.check_only) checks.push_back(id);
  for (const RequestId& id : checks) answer(flight, id, fail(not_cached()), {}, out);
  misses_ += std::ssize(checks);
  if (!wanted(flight)) return end(flight);
  ++misses_;
  joined_ += std::max<int64_t>(std::ssize(flight.waiters) - 1, 0);
  flight.stage = Stage::kWaitGraph;
  if (const Status possible = floor_.check_target(flight.target); !possible)
    return fail_flight(now_ms, flight, possible.error(), out);
  if (floor_.candidates_queued() >= options_.max_candidates_queued)
    return fail_flight(now_ms, flight, overloaded("too many candidates wait for workers"), out);
  if (detached_.contains(flight.key)) return start_plan(flight, {}, {}, out);
  if (flight.graph_text.empty()) return ask_for_graph(now_ms, flight, out);
  start_plan(flight, flight.uploader, std::move(flight.graph_text), out);
}

// The next waiting client after the one asked last, so that one that never answers is passed over,
// and in the end answered itself.
void RequestDesk::ask_for_graph(int64_t now_ms, ProgramFlight& flight, Actions& out) {
  while (!flight.waiters.empty()) {
    auto next = flight.asked ? flight.waiters.upper_bound(*flight.asked) : flight.waiters.begin();
    if (next == flight.waiters.end()) next = flight.waiters.begin();
    const RequestId id = next->first;
    flight.asked = id;
    flight.asked_ms = now_ms;
    graphs_due_.add(now_ms + options_.graph_timeout_ms, flight.key);
    if (++next->second.times_asked <= kMaxAsks) {
      out.push_back(AskForGraph{id.first, id.second});
      return;
    }
    answer(flight, id, fail(Code::kDeadlineExceeded, "the graph was asked for and never came"), {},
           out);
  }
  end(flight);
}

// Without an uploader the text is empty: the planner takes the stored flight's.
void RequestDesk::start_plan(ProgramFlight& flight, const std::optional<RequestId>& uploader,
                             std::string text, Actions& out) {
  flight.stage = Stage::kPlanning;
  flight.asked.reset();
  flight.uploader = uploader;
  flight.graph_text = text;  // kept for those who will ask with `detach`
  flight.plan_ticket = floor_.plan_started();
  out.push_back(StartPlan{flight.key, flight.graph, flight.target, flight.mode, std::move(text)});
}

void RequestDesk::plan_finished(int64_t now_ms, PlanFinished event, Actions& out) {
  ProgramFlight* flight = find(event.key);
  if (flight == nullptr || flight->stage != Stage::kPlanning) return;
  // The ticket is given back last: until then the floor keeps what the plan may not know.
  const uint64_t ticket = flight->plan_ticket;
  if (!wanted(*flight))
    end(*flight);
  else if (!event.program)
    plan_failed(now_ms, *flight, event.program.error(), out);
  else
    start_tuning(now_ms, *flight, std::move(event), out);
  floor_.plan_finished(ticket);
}

void RequestDesk::plan_failed(int64_t now_ms, ProgramFlight& flight, const Error& error,
                              Actions& out) {
  if (error.code != Code::kInvalidArgument) return fail_flight(now_ms, flight, error, out);
  // The graph was not what its digest says: only who sent it is to blame.
  flight.graph_text.clear();
  detached_.ended(now_ms, flight.key, fail(error), out);  // it was the stored one
  const auto uploader = flight.uploader;
  if (uploader && flight.waiters.contains(*uploader))
    answer(flight, *uploader, fail(error), {}, out);
  if (flight.waiters.empty()) return end(flight);
  flight.stage = Stage::kWaitGraph;
  ask_for_graph(now_ms, flight, out);
}

void RequestDesk::start_tuning(int64_t now_ms, ProgramFlight& flight, PlanFinished event,
                               Actions& out) {
  flight.stage = Stage::kTuning;
  flight.program = *std::move(event.program);
  flight.program.kernels.clear();
  flight.alternatives = std::move(event.alternatives);
  progress_due_.add(now_ms, flight.key);
  for (const PlannedKernel& planned : event.kernels) {
    ProgramKernel kernel;
    kernel.key = planned.key;
    flight.program.kernels.push_back(planned.cached.value_or(kernel));
    if (!planned.cached) flight.pending.push_back(planned.key);
  }
  const Demand demand = demand_of(flight);
  for (PlannedKernel& planned : event.kernels)
    if (!planned.cached)
      floor_.need(now_ms, flight.key, std::move(planned), demand, flight.target, flight.mode, out);
  if (flight.pending.empty()) return kernels_done(now_ms, flight, out);
  save_if_asked(flight, out);
}

void RequestDesk::kernels_settled(int64_t now_ms, Actions& out) {
  for (const Digest& key : floor_.take_settled()) {
    const KernelFlight* kernel = floor_.find(key);
    if (kernel == nullptr) continue;
    const auto programs = kernel->programs();  // releasing them changes it, and may end the flight
    for (const auto& [program, demand] : programs) {
      ProgramFlight* flight = find(program);
      CHECK(flight != nullptr, "a kernel flight's programs are open");
      kernel_settled(now_ms, *flight, *kernel, out);
    }
  }
}

void RequestDesk::kernel_settled(int64_t now_ms, ProgramFlight& flight, const KernelFlight& kernel,
                                 Actions& out) {
  const Digest key = kernel.key();
  if (kernel.stage() == KernelFlight::Stage::kFailed) {
    flight.failed.push_back(key);
    if (!has_way_without(flight.failed, flight.program, flight.alternatives))
      return fail_flight(now_ms, flight, kernel.error(), out);
    if (failure_class(kernel.error().code) == FailureClass::kTransient)
      flight.some_way_untried = true;
  } else {
    for (ProgramKernel& slot : flight.program.kernels)
      if (slot.key == key) slot = kernel.winner();
    if (!kernel.stored()) flight.unstored.push_back(key);
  }
  std::erase(flight.pending, key);
  floor_.release(flight.key, key);
  if (flight.pending.empty()) kernels_done(now_ms, flight, out);
}

void RequestDesk::kernels_done(int64_t now_ms, ProgramFlight& flight, Actions& out) {
  flight.stage = Stage::kStoring;
  flight.program =
      fastest_way(flight.failed, std::move(flight.program), std::move(flight.alternatives));
  flight.program_json = program_to_json(flight.program);
  // Answered, since it works; what is stored would be the choice for good.
  if (flight.some_way_untried && !planted(PlantedBug::kChooseTooEarly))
    return finish(now_ms, flight, fail(Code::kUnavailable, "a way to cut it was not tuned"), out);
  // A program whose kernels are not all stored would be found again without its binaries.
  const bool all_stored =
      std::ranges::none_of(flight.program.kernels, [&](const ProgramKernel& kernel) {
        return std::ranges::find(flight.unstored, kernel.key) != flight.unstored.end();
      });
  if (!all_stored && !planted(PlantedBug::kStoreWithoutKernels))
    return finish(now_ms, flight, fail(Code::kUnavailable, "a kernel could not be stored"), out);
  out.push_back(StoreProgram{std::move(flight.program)});
}

void RequestDesk::program_stored(int64_t now_ms, const ProgramStored& event, Actions& out) {
  ProgramFlight* flight = find(event.key);
  if (flight == nullptr || flight->stage != Stage::kStoring) return;
  if (!event.status) ++store_failures_;
  Status stored = event.status;  // a store that failed may work again later
  if (!stored) stored.error().code = Code::kUnavailable;
  finish(now_ms, *flight, stored, out);
}

void RequestDesk::finish(int64_t now_ms, ProgramFlight& flight, const Status& stored,
                         Actions& out) {
  while (!flight.waiters.empty()) {
    const RequestId id = flight.waiters.begin()->first;
    answer(flight, id, id == flight.starter ? CacheOutcome::kTuned : CacheOutcome::kJoined,
           flight.program_json, out, !stored.has_value());
  }
  if (!stored) out.push_back(KeepProgram{flight.program_json});
  detached_.ended(now_ms, flight.key, stored, out);
  end(flight);
}

void RequestDesk::fail_flight(int64_t now_ms, ProgramFlight& flight, const Error& error,
                              Actions& out) {
  // What the program itself is to blame for stays so; an absent worker or store does not.
  if (failure_class(error.code) == FailureClass::kTerminal)
    failures_.remember(now_ms, flight.key, error);
  while (!flight.waiters.empty())
    answer(flight, RequestId(flight.waiters.begin()->first), fail(error), {}, out);
  detached_.ended(now_ms, flight.key, fail(error), out);
  end(flight);
}

// ---- Time passes ----

void RequestDesk::tick(int64_t now_ms, Actions& out) {
  while (const auto key = graphs_due_.take(now_ms)) {
    ProgramFlight* flight = find(*key);
    if (flight == nullptr || flight->stage != Stage::kWaitGraph) continue;
    if (now_ms - flight->asked_ms >= options_.graph_timeout_ms) ask_for_graph(now_ms, *flight, out);
  }
  for (int64_t sent = 0; sent < kProgressATick;) {
    const auto key = progress_due_.take(now_ms);
    if (!key) break;
    ProgramFlight* flight = find(*key);
    if (flight == nullptr || flight->stage != Stage::kTuning) continue;
    if (const int64_t due_ms = flight->progress_ms + options_.progress_interval_ms;
        now_ms < due_ms) {
      progress_due_.add(due_ms, *key);
      continue;
    }
    send_progress(now_ms, *flight, out);
    sent += std::max<int64_t>(std::ssize(flight->waiters), 1);
  }
  start_detached(now_ms, out);
}

void RequestDesk::send_progress(int64_t now_ms, ProgramFlight& flight, Actions& out) {
  Progress progress;
  progress.kernels = static_cast<int>(flight.program.kernels.size());
  progress.kernels_done = progress.kernels - static_cast<int>(flight.pending.size());
  for (const ProgramKernel& kernel : flight.program.kernels) {
    if (const KernelFlight* tuning = floor_.find(kernel.key); tuning != nullptr) {
      progress.candidates += tuning->candidates().size();
      progress.candidates_done += tuning->candidates().settled();
    } else {
      progress.candidates += kernel.report.candidates;
      progress.candidates_done += kernel.report.candidates;
    }
  }
  progress.elapsed_s = static_cast<double>(now_ms - flight.started_ms) / 1000;
  for (const auto& [id, waiter] : flight.waiters) {
    progress.request = id.second;
    out.push_back(SendProgress{id.first, progress});
  }
  flight.progress_ms = now_ms;
  progress_due_.add(now_ms + options_.progress_interval_ms, flight.key);
}

void RequestDesk::add_stats(Stats& stats) const {
  stats.hits += hits_;
  stats.misses += misses_;
  stats.joined += joined_;
  stats.flights_open += std::ssize(flights_);
  stats.store_failures += store_failures_;
  stats.requests_open += open_.count();
  stats.overloaded += overloaded_;
  detached_.add_stats(stats);
}

}  // namespace kiln
