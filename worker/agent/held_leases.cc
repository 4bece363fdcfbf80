#include "worker/agent/held_leases.h"

#include <algorithm>

namespace kiln {
namespace {

size_t bytes_of(const CandidateResult& result) {
  return sizeof result + result.log.size() + result.recipe_json.size() + result.binary.size() +
         result.measurement.samples_us.size() * sizeof(double);
}

}  // namespace

HeldLeases::Changes HeldLeases::apply(WorkerOrders orders) {
  Changes changes;
  for (const ResultAck& ack : orders.acks) {
    std::erase_if(results_, [&](const CandidateResult& result) {
      if (result.lease != ack.lease || result.index != ack.index) return false;
      held_bytes_ -= bytes_of(result);
      return true;
    });
  }
  for (const auto& [id, lease] : leases_)
    if (std::ranges::find(orders.leases, id) == orders.leases.end()) changes.drop.push_back(id);
  for (const uint64_t id : changes.drop) leases_.erase(id);
  if (self_.draining) return changes;
  for (Job& job : orders.jobs) {
    const bool finished = std::ranges::any_of(results_, [&](const CandidateResult& result) {
      return result.lease == job.lease && result.epoch == job.epoch;
    });
    if (finished || job.candidates.empty() || leases_.contains(job.lease)) continue;
    leases_[job.lease] = {job.epoch, job.candidates.size(), 0};
    changes.start.push_back(std::move(job));
  }
  return changes;
}

void HeldLeases::step(uint64_t lease) {
  if (const auto found = leases_.find(lease); found != leases_.end()) ++found->second.steps;
}

bool HeldLeases::finish(CandidateResult result) {
  const auto found = leases_.find(result.lease);
  if (found == leases_.end() || found->second.epoch != result.epoch) return false;
  ++found->second.steps;
  if (--found->second.unfinished == 0) leases_.erase(found);
  held_bytes_ += bytes_of(result);
  results_.push_back(std::move(result));
  return true;
}

void HeldLeases::drain() {
  self_.draining = true;
  leases_.clear();
}

void HeldLeases::set_health(double calibration_us, int device_errors) {
  self_.sentinel_us = calibration_us;
  self_.device_errors = device_errors;
}

WorkerReport HeldLeases::report() const {
  WorkerReport report = self_;
  if (held_bytes_ > kMaxHeldBytes) report.slots = report.compilers = 0;
  for (const auto& [id, lease] : leases_) report.leases.push_back({id, lease.epoch, lease.steps});
  size_t bytes = 0;
  for (const CandidateResult& result : results_) {
    bytes += bytes_of(result);
    if (bytes <= kMaxReportBytes || report.results.empty()) {
      report.results.push_back(result);
    } else if (std::ranges::find(report.leases, result.lease, &LeaseState::lease) ==
               report.leases.end()) {
      report.leases.push_back({result.lease, result.epoch, 0});  // the rest comes later
    }
  }
  return report;
}

}  // namespace kiln
