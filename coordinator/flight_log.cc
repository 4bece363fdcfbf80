#include "coordinator/flight_log.h"

#include <fmt/format.h>

namespace kiln {
namespace {

constexpr size_t kUsersNamed = 8;

std::string names_of(const std::set<std::string>& users) {
  std::string names;
  size_t named = 0;
  for (const std::string& user : users) {
    if (named == kUsersNamed) return names + fmt::format(",+{}", users.size() - named);
    names += (named++ == 0 ? "" : ",") + user;
  }
  return names;
}

double seconds(int64_t ms) {
  return static_cast<double>(ms) / 1000;
}

}  // namespace

FlightLog::Flight* FlightLog::find(const Digest& key) {
  const auto found = flights_.find(key);
  return found == flights_.end() ? nullptr : &found->second;
}

// A bad graph sends a flight back to an earlier stage: times of one stage add up.
void FlightLog::enter(int64_t now_ms, FlightStage stage, Flight& flight) {
  flight.stage_ms[static_cast<size_t>(flight.stage)] += now_ms - flight.stage_since_ms;
  flight.stage = stage;
  flight.stages_reached.set(static_cast<size_t>(stage));
  flight.stage_since_ms = now_ms;
}

void FlightLog::asked(int64_t now_ms, const Digest& key, const ClientId& client,
                      const std::string& user, const CompileRequest& request) {
  const bool is_new = requests_.try_emplace({client, request.request}, key).second;
  if (!is_new) return;  // the same request again, with its graph
  Flight& flight = flights_[key];
  if (flight.requests++ == 0) {
    flight.started_ms = flight.stage_since_ms = now_ms;
    flight.target = request.target.to_string();
    flight.mode = to_string(request.mode);
  }
  ++flight.waiting;
  flight.clients.insert(client);
  flight.users.insert(user.empty() ? "local" : user);
}

void FlightLog::waiting_for_graph(int64_t now_ms, const ClientId& client, uint64_t request) {
  const auto asked = requests_.find({client, request});
  if (asked == requests_.end()) return;
  Flight* flight = find(asked->second);
  if (flight != nullptr && flight->stage != FlightStage::kWaitGraph) {
    enter(now_ms, FlightStage::kWaitGraph, *flight);
  }
}

void FlightLog::planning(int64_t now_ms, const Digest& key) {
  if (Flight* flight = find(key)) enter(now_ms, FlightStage::kPlanning, *flight);
}

void FlightLog::planned(int64_t now_ms, const PlanFinished& plan) {
  Flight* flight = find(plan.key);
  if (flight == nullptr || flight->stage != FlightStage::kPlanning) return;
  enter(now_ms, FlightStage::kTuning, *flight);
  flight->kernels = plan.kernels.size();
  flight->cached = flight->candidates = 0;
  for (const PlannedKernel& kernel : plan.kernels) {
    flight->cached += kernel.cached ? 1 : 0;
    flight->candidates += kernel.cached ? 0 : kernel.schedules.size();
  }
}

void FlightLog::storing(int64_t now_ms, const Program& program) {
  Flight* flight = find(program.key);
  if (flight == nullptr) return;
  enter(now_ms, FlightStage::kStoring, *flight);
  for (const ProgramKernel& kernel : program.kernels) flight->winners_us += kernel.report.best_us;
}

void FlightLog::answered(int64_t now_ms, const ClientId& client, const CompileReply& reply) {
  if (const auto found = requests_.find({client, reply.request}); found != requests_.end()) {
    leave(now_ms, found, &reply);
  }
}

void FlightLog::cancelled(int64_t now_ms, const ClientId& client, uint64_t request) {
  if (const auto found = requests_.find({client, request}); found != requests_.end()) {
    leave(now_ms, found, nullptr);
  }
}

void FlightLog::gone(int64_t now_ms, const ClientId& client) {
  for (auto at = requests_.lower_bound({client, 0});
       at != requests_.end() && at->first.first == client;) {
    leave(now_ms, at++, nullptr);
  }
}

void FlightLog::leave(int64_t now_ms, std::map<RequestId, Digest>::iterator request,
                      const CompileReply* reply) {
  const Digest key = request->second;
  requests_.erase(request);
  const auto found = flights_.find(key);
  if (found == flights_.end()) return;
  Flight& flight = found->second;
  if (reply != nullptr && reply->outcome) {
    // The one that started the flight says "tuned"; those that joined say less.
    if (flight.outcome != "tuned") flight.outcome = to_string(*reply->outcome);
  } else if (reply != nullptr) {
    flight.outcome = to_string(reply->outcome.error().code);
    flight.reason = reply->outcome.error().message;
  }
  flight.detached |= reply != nullptr && reply->outcome && *reply->outcome == CacheOutcome::kQueued;
  if (--flight.waiting > 0 || flight.detached) return;
  end(now_ms, key, flight);
  flights_.erase(found);
}

void FlightLog::detached_ended(int64_t now_ms, const Digest& key, const EndFlight& ended) {
  Flight& flight = flights_[key];
  if (flight.requests == 0 && !flight.detached) {  // queued in an earlier life
    flight.started_ms = flight.stage_since_ms = now_ms;
    flight.target = ended.flight.target.to_string();
    flight.mode = to_string(ended.flight.mode);
  }
  flight.detached = false;
  flight.outcome = ended.outcome ? "tuned" : to_string(ended.outcome.error().code);
  if (!ended.outcome) flight.reason = ended.outcome.error().message;
  if (flight.waiting > 0) return;
  end(now_ms, key, flight);
  flights_.erase(key);
}

void FlightLog::end(int64_t now_ms, const Digest& key, Flight& flight) {
  // What the index knew, or was asked about and did not know, was no flight to speak of.
  const bool looked_up_only = !flight.reached(FlightStage::kPlanning) &&
                              (flight.outcome == "hit" || flight.outcome == "not_found");
  if (looked_up_only) return;
  enter(now_ms, flight.stage, flight);
  report(key, flight, now_ms - flight.started_ms);
}

void FlightLog::report(const Digest& key, const Flight& flight, int64_t total_ms) {
  ++times_.outcomes[flight.outcome];
  times_.total.observe(seconds(total_ms));
  for (size_t i = 0; i < kFlightStages; ++i) {
    if (flight.reached(static_cast<FlightStage>(i))) {
      times_.stages[i].observe(seconds(flight.stage_ms[i]));
    }
  }
  if (!sink_) return;
  LogLine line("flight");
  line.add("key", key.short_hex()).add("target", flight.target).add("mode", flight.mode);
  line.add("outcome", flight.outcome).add("requests", flight.requests);
  line.add("clients", flight.clients.size()).add("kernels", flight.kernels);
  line.add("cached", flight.cached).add("candidates", flight.candidates);
  line.add("winners_us", flight.winners_us);
  for (size_t i = 0; i < kFlightStages; ++i) {
    line.add(fmt::format("{}_s", to_string(static_cast<FlightStage>(i))),
             seconds(flight.stage_ms[i]));
  }
  line.add("total_s", seconds(total_ms));
  if (!flight.users.empty()) line.add("users", names_of(flight.users));
  line.add("program_key", key.hex());
  if (!flight.reason.empty()) line.add("reason", flight.reason);
  sink_(line);
}

}  // namespace kiln
