#include "coordinator/flight_log.h"

#include <fmt/format.h>

namespace kiln {
namespace {

double seconds(int64_t from_ms, int64_t to_ms) {
  return from_ms == 0 || to_ms == 0 ? 0 : static_cast<double>(to_ms - from_ms) / 1000;
}

}  // namespace

void FlightLog::asked(int64_t now_ms, const Digest& key, const ClientId& client,
                      const CompileRequest& request) {
  const bool is_new = requests_.try_emplace({client, request.request}, key).second;
  if (!is_new) return;  // the same request again, with its graph
  Flight& flight = flights_[key];
  if (flight.requests++ == 0) {
    flight.started_ms = now_ms;
    flight.target = request.target.to_string();
    flight.mode = to_string(request.mode);
  }
  ++flight.waiting;
  flight.clients.insert(client);
}

void FlightLog::planning(int64_t now_ms, const Digest& key) {
  if (const auto found = flights_.find(key); found != flights_.end()) {
    found->second.planning_ms = now_ms;
  }
}

void FlightLog::planned(int64_t now_ms, const PlanFinished& plan) {
  const auto found = flights_.find(plan.key);
  if (found == flights_.end()) return;
  found->second.planned_ms = now_ms;
  found->second.kernels = plan.kernels.size();
  found->second.cached = 0;
  for (const PlannedKernel& kernel : plan.kernels) found->second.cached += kernel.cached ? 1 : 0;
}

void FlightLog::storing(int64_t now_ms, const Digest& key) {
  if (const auto found = flights_.find(key); found != flights_.end()) {
    found->second.storing_ms = now_ms;
  }
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
  if (--flight.waiting > 0) return;
  // What the index knew, or was asked about and did not know, was no flight to speak of.
  const bool looked_up_only =
      flight.planning_ms == 0 && (flight.outcome == "hit" || flight.outcome == "not_found");
  if (sink_ && !looked_up_only) sink_(line(now_ms, key, flight));
  flights_.erase(found);
}

std::string FlightLog::line(int64_t now_ms, const Digest& key, const Flight& flight) const {
  std::string text = fmt::format(
      "flight key={} target={} mode={} outcome={} requests={} clients={} kernels={} cached={} "
      "plan_s={:.3f} tune_s={:.3f} store_s={:.3f} total_s={:.3f}",
      key.short_hex(), flight.target, flight.mode, flight.outcome, flight.requests,
      flight.clients.size(), flight.kernels, flight.cached,
      seconds(flight.planning_ms, flight.planned_ms),
      seconds(flight.planned_ms, flight.storing_ms != 0 ? flight.storing_ms : now_ms),
      seconds(flight.storing_ms, now_ms), seconds(flight.started_ms, now_ms));
  if (!flight.reason.empty()) text += fmt::format(" reason={:?}", flight.reason);
  return text;
}

}  // namespace kiln
