#include "coordinator/core/requests/request_desk.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/base/check.h"
#include "coordinator/core/planted.h"

namespace kiln {
namespace {

Answer refusal(const RequestId& id, Error error) {
  CompileReply reply;
  reply.request = id.second;
  reply.outcome = fail(std::move(error));
  return Answer{id.first, std::move(reply)};
}

constexpr int64_t kProgressATick = 128;        // messages; the others' turn comes in later ticks
constexpr char kDetachedShare[] = "detached";  // of work that no client of this life began

}  // namespace

ProgramFlight* RequestDesk::find(const Digest& key) {
  const auto found = flights_.find(key);
  return found == flights_.end() ? nullptr : &found->second;
}

// ---- Requests come and go ----

void RequestDesk::request(int64_t now_ms, const ClientId& client, const std::string& user,
                          CompileRequest request, Actions& out) {
  const RequestId id{client, request.request};
  if (open_.find(id) != nullptr) return repeated(now_ms, id, std::move(request), out);
  const ShareId share = user.empty() ? "connection " + client : "user " + user;
  const Digest key = program_key(request.graph, request.target, request.mode, options_.codegen);
  if (refuse(now_ms, id, share, key, request, out)) return;
  if (request.detach && answer_detached(id, key, out)) return;

  open_.add(id, share, key);
  auto [entry, is_new] = flights_.try_emplace(key);
  ProgramFlight& flight = entry->second;
  if (!is_new) return join(now_ms, id, flight, std::move(request), out);
  flight.key = key;
  flight.graph = request.graph;
  flight.target = request.target;
  flight.mode = request.mode;
  flight.started_ms = now_ms;
  await_look_up(id, flight, std::move(request));
  out.push_back(LookUpProgram{key});
}

Error RequestDesk::overloaded(std::string what) {
  ++overloaded_;
  return {Code::kOverloaded, std::move(what), options_.retry_after_ms};
}

Error RequestDesk::not_cached(const Target& target) const {
  if (!names_no_device(target)) return {Code::kNotFound, "the program is not in the cache", 0};
  return {
      Code::kNotFound,
      fmt::format("the program is not in the cache for '{}' as it stands: programs are made for "
                  "a device, this names none, and no worker that could say which is meant is "
                  "connected (those there are have: {}); ask while one is, or from a machine "
                  "with such a GPU",
                  describe(target), floor_.targets()),
      0};
}

bool RequestDesk::refuse(int64_t now_ms, const RequestId& id, const ShareId& share,
                         const Digest& key, const CompileRequest& request, Actions& out) {
  if (open_.full(share)) {
    out.push_back(refusal(id, overloaded("too many requests are waiting")));
    return true;
  }
  // Begun under this key it would be tuned for no device in particular.
  if (names_no_device(request.target) && floor_.may_yet_come(now_ms, request.target)) {
    out.push_back(refusal(
        id, overloaded(fmt::format("the coordinator has just begun, and no worker has reported yet "
                                   "that could say which device '{}' means",
                                   describe(request.target)))));
    return true;
  }
  const auto known = failures_.find(now_ms, key);
  if (known) out.push_back(refusal(id, request.check_only ? not_cached(request.target) : *known));
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

void RequestDesk::join(int64_t now_ms, const RequestId& id, ProgramFlight& flight,
                       CompileRequest request, Actions& out) {
  if (flight.stage == Stage::kLookingUp) return await_look_up(id, flight, std::move(request));
  flight.waiters[id] = {request.check_only, request.detach, request.priority};
  if (request.check_only) return answer(flight, id, fail(not_cached(flight.target)), {}, out);
  ++joined_;
  demand_changed(flight);
  if (flight.stage == Stage::kWaitGraph && !request.graph_text.empty())
    return start_plan(now_ms, flight, id, std::move(request.graph_text), out);
  if (request.detach) save_if_asked(now_ms, flight, out);
}

void RequestDesk::await_look_up(const RequestId& id, ProgramFlight& flight,
                                CompileRequest request) {
  flight.waiters[id] = {request.check_only, request.detach, request.priority};
  if (!request.check_only && !flight.starter) flight.starter = id;
  if (request.graph_text.empty() || !flight.uploaded.empty()) return;
  flight.uploaded = std::move(request.graph_text);
  flight.uploader = id;
}

// The same request again: the graph that we asked for, or a repetition because something was lost.
void RequestDesk::repeated(int64_t now_ms, const RequestId& id, CompileRequest request,
                           Actions& out) {
  ProgramFlight* flight = find(*open_.find(id));
  CHECK(flight != nullptr, "an open request waits for a flight");
  if (flight->graph != request.graph) return;  // another question under a number in use
  if (flight->stage == Stage::kLookingUp) return await_look_up(id, *flight, std::move(request));
  if (flight->stage != Stage::kWaitGraph) return;
  if (!request.graph_text.empty())
    start_plan(now_ms, *flight, id, std::move(request.graph_text), out);
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
  drop_graph(flight);
  flights_.erase(key);
  for (const Digest& kernel : pending) floor_.release(key, kernel);
  // Whatever ended it, what was promised goes on: it waits for its turn again.
  if (!planted(PlantedBug::kForgetQueued)) detached_.postpone(key);
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
