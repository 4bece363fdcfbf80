#include "tests/simulation/fairness_watch.h"

#include <fmt/core.h>

namespace kiln::simulation {

void FairnessWatch::incarnation_begins() {
  open_.clear();
  kernels_of_.clear();
  untouched_.clear();
  passed_over_.clear();
}

void FairnessWatch::asked(const RequestReceived& event) {
  const CompileRequest& request = event.request;
  if (request.check_only || request.detach) return;
  open_.try_emplace({event.client, request.request},
                    Asked{event.user.empty() ? event.client : event.user, request.graph,
                          request.mode, request.priority == Priority::kWarmUp});
}

void FairnessWatch::ended(const ClientId& client, uint64_t request) {
  open_.erase({client, request});
}

void FairnessWatch::gone(const ClientId& client) {
  std::erase_if(open_, [&](const auto& entry) { return entry.first.first == client; });
}

void FairnessWatch::planned(const PlanFinished& plan) {
  if (!plan.program) return;
  auto& kernels = kernels_of_[{plan.program->graph, plan.program->mode}];
  for (const PlannedKernel& kernel : plan.kernels) {
    if (kernel.cached) continue;
    kernels.insert(kernel.key);
    if (plan.program->mode != Mode::kMaxAutotune) continue;  // not all of its schedules are tried
    const auto [entry, is_new] = untouched_.try_emplace(kernel.key);
    if (!is_new) continue;
    for (const Schedule& schedule : kernel.schedules) entry->second.insert(schedule.to_string());
    for (const TuningRecord& record : kernel.records)
      entry->second.erase(record.schedule.to_string());
  }
}

std::map<TenantId, FairnessWatch::Waiting> FairnessWatch::tenants(const Digest& leased) const {
  std::map<TenantId, Waiting> tenants;
  for (const auto& [id, asked] : open_) {
    const auto kernels = kernels_of_.find({asked.graph, asked.mode});
    if (kernels == kernels_of_.end()) continue;
    Waiting& tenant = tenants[asked.tenant];
    for (const Digest& kernel : kernels->second) {
      tenant.served = tenant.served || kernel == leased;
      const auto left = untouched_.find(kernel);
      if (left == untouched_.end() || left->second.empty()) continue;
      tenant.waits = true;
      tenant.warm_up_only = tenant.warm_up_only && asked.warm_up;
    }
  }
  return tenants;
}

std::optional<std::string> FairnessWatch::leased(const Job& job) {
  const auto all = tenants(job.kernel_key);
  if (const auto left = untouched_.find(job.kernel_key); left != untouched_.end())
    for (const CandidateJob& candidate : job.candidates)
      left->second.erase(candidate.schedule.to_string());
  // Between two turns of a waiting tenant another gets at most the work of the largest lease of
  // each (start-time fair queueing): the clocks are no further apart than the one's last charge,
  // and the other is served while it is not ahead. The largest here is a final of 4 candidates, so
  // another gets 4 + 1 leases of one candidate while the latency stays, and one more for a latency
  // that falls from the 300 ms presumed. 24 is tuned, not derived: newcomers (not among `all` once
  // they leave), hedges and leases lost and given again are charged to nobody or counted twice, and
  // two classes of devices have clocks of their own. What can be proved is looser
  // (docs/simulation.md).
  const int patience = 6 * static_cast<int>(all.size()) + 24;
  for (const auto& [id, tenant] : all) {
    int& passed_over = passed_over_[id];
    passed_over = tenant.served || !tenant.waits ? 0 : passed_over + 1;
    if (passed_over > patience * (tenant.warm_up_only ? options_.warm_up_turn : 1))
      return fmt::format("{} waits while others get {} leases in a row", id, passed_over);
  }
  return std::nullopt;
}

}  // namespace kiln::simulation
