// RequestDesk's side of detached requests: the graph of a planned flight is stored, then who asked
// so is answered `queued`; DetachedQueue says which stored flights go on when.
#include "coordinator/core/request_desk.h"

namespace kiln {

// True: answered at once, since it goes on already, or cannot.
bool RequestDesk::answer_detached(const RequestId& id, const Digest& key, Actions& out) {
  const bool known = detached_.contains(key);
  if (!known && !detached_.full()) return false;
  CompileReply reply;
  reply.request = id.second;
  reply.outcome = CacheOutcome::kQueued;
  if (!known)
    reply.outcome = fail(
        Error{Code::kOverloaded, "too many programs are queued already", options_.retry_after_ms});
  out.push_back(Answer{id.first, std::move(reply)});
  return true;
}

bool RequestDesk::wanted(const ProgramFlight& flight) const {
  return !flight.waiters.empty() || flight.saving || detached_.contains(flight.key);
}

// The plan has shown that the graph is what it says it is, so that what is promised can be done.
void RequestDesk::save_if_asked(ProgramFlight& flight, Actions& out) {
  if (flight.stage != Stage::kTuning || flight.saving || flight.graph_text.empty()) return;
  const bool asked = std::any_of(flight.waiters.begin(), flight.waiters.end(),
                                 [](const auto& waiter) { return waiter.second.detach; });
  if (!asked) return;
  flight.saving = true;
  out.push_back(
      StoreFlight{flight.key, {flight.graph, flight.target, flight.mode}, flight.graph_text});
}

void RequestDesk::flight_stored(const FlightStored& event, Actions& out) {
  ProgramFlight* flight = find(event.key);
  if (flight != nullptr && !flight->saving) flight = nullptr;  // another one of the same program
  if (event.status) detached_.add(event.flight, flight != nullptr);
  if (flight == nullptr) return;
  flight->saving = false;
  std::vector<RequestId> asked;
  for (const auto& [id, waiter] : flight->waiters)
    if (waiter.detach) asked.push_back(id);
  for (const RequestId& id : asked) {
    Result<CacheOutcome> outcome = CacheOutcome::kQueued;
    if (!event.status) outcome = fail(event.status.error().within("the queue cannot be stored"));
    answer(*flight, id, std::move(outcome), {}, out);
  }
  demand_changed(*flight);
  if (!flight->waiters.empty()) return;
  if (detached_.contains(event.key)) {
    if (!detached_.crowded()) return;
    detached_.postpone(event.key);
  }
  abandon(*flight);
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
  while (const DetachedFlight* next = detached_.start_next(now_ms, can_run)) {
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
