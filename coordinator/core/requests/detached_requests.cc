// RequestDesk's side of detached requests: the graph of a planned flight is stored, then who asked
// so is answered `queued`; DetachedQueue says which stored flights go on when.
#include <algorithm>
#include <utility>

#include "coordinator/core/planted.h"
#include "coordinator/core/requests/request_desk.h"

namespace kiln {
namespace {

constexpr char kTooManyQueued[] = "too many programs are queued already";

}  // namespace

// True: answered at once, since it goes on already, or cannot.
bool RequestDesk::answer_detached(const RequestId& id, const Digest& key, Actions& out) {
  const bool known = detached_.contains(key);
  if (!known && (!detached_.full() || detached_.coming(key))) return false;
  CompileReply reply;
  reply.request = id.second;
  reply.outcome = CacheOutcome::kQueued;
  if (!known) reply.outcome = fail(overloaded(kTooManyQueued));
  out.push_back(Answer{id.first, std::move(reply)});
  return true;
}

bool RequestDesk::wanted(const ProgramFlight& flight) {
  if (!flight.waiters.empty() || flight.saving) return true;
  if (planted(PlantedBug::kUncountedDetached)) return detached_.contains(flight.key);
  return detached_.keeps_running(flight.key);
}

// The plan has shown that the graph is what it says it is, so that what is promised can be done.
void RequestDesk::save_if_asked(int64_t now_ms, ProgramFlight& flight, Actions& out) {
  if (flight.stage != Stage::kTuning || flight.saving) return;
  const bool asked = std::any_of(flight.waiters.begin(), flight.waiters.end(),
                                 [](const auto& waiter) { return waiter.second.detach; });
  if (!asked) return;
  if (detached_.coming(flight.key)) {  // an earlier flight of the program began to
    flight.saving = true;
  } else if (floor_.may_yet_come(now_ms, flight.target)) {  // or never: then it would wait for good
    answer_queued(flight, fail(overloaded("no worker for it has reported yet")), out);
  } else if (!floor_.expects(flight.target)) {
    return;  // it fails at the next tick
  } else if (flight.graph_text.empty()) {
    answer_queued(flight, fail(overloaded("too many graphs are kept already")), out);
  } else if (detached_.full() && !planted(PlantedBug::kQueueWithoutBound)) {
    answer_queued(flight, fail(overloaded(kTooManyQueued)), out);
  } else {
    flight.saving = true;
    detached_.expect(flight.key);
    out.push_back(
        StoreFlight{flight.key, {flight.graph, flight.target, flight.mode}, flight.graph_text});
  }
  if (!wanted(flight)) abandon(flight);
}

// Those who asked with `detach`.
void RequestDesk::answer_queued(ProgramFlight& flight, const Result<CacheOutcome>& outcome,
                                Actions& out) {
  std::vector<RequestId> asked;
  for (const auto& [id, waiter] : flight.waiters)
    if (waiter.detach) asked.push_back(id);
  for (const RequestId& id : asked) answer(flight, id, outcome, {}, out);
}

// The flight that is open now may be another one of the same program: that it is queued is as true.
void RequestDesk::flight_stored(int64_t now_ms, const FlightStored& event, Actions& out) {
  if (!detached_.arrived(event.key)) return;
  ProgramFlight* flight = find(event.key);
  if (event.status) detached_.add(event.flight, flight != nullptr);
  if (flight == nullptr) return;
  const bool was_saving = std::exchange(flight->saving, false);
  if (event.status) {
    drop_graph(*flight);
    answer_queued(*flight, CacheOutcome::kQueued, out);
  } else if (was_saving) {
    answer_queued(*flight, fail(event.status.error().within("the queue cannot be stored")), out);
  }
  demand_changed(*flight);
  if (!wanted(*flight)) return abandon(*flight);
  if (event.status && flight->stage == Stage::kWaitGraph)
    start_plan(now_ms, *flight, {}, {}, out);  // whoever was asked need not send it
}

void RequestDesk::flight_recovered(const FlightRecovered& event, Actions& out) {
  if (event.failure)
    detached_.recall_failure(event.flight, *event.failure, out);
  else
    detached_.add(event.flight, false);
}

void RequestDesk::start_detached(int64_t now_ms, Actions& out) {
  const auto can_run = [this](const Target& target) {
    return floor_.check_target(target).has_value();
  };
  while (!crowded()) {  // begun it would only be put off
    const DetachedFlight* next = detached_.start_next(now_ms, can_run);
    if (next == nullptr) return;
    const Digest key = program_key(next->graph, next->target, next->mode, options_.codegen);
    auto [entry, is_new] = flights_.try_emplace(key);
    if (!is_new) continue;  // clients wait for it
    ProgramFlight& flight = entry->second;
    flight.key = key;
    flight.graph = next->graph;
    flight.target = next->target;
    flight.mode = next->mode;
    flight.started_ms = now_ms;
    out.push_back(LookUpProgram{key});
  }
}

}  // namespace kiln
