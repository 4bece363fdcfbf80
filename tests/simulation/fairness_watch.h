// FairnessWatch: whether somebody starves while others are served (invariant 4), in clusters where
// every lease is one candidate of one target, so that leases can be counted. A tenant waits while
// it asks for a program with candidates that were never leased in this incarnation; each lease that
// a worker gets for others passes it over. Knows nothing of how the core shares work out.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "coordinator/core/events.h"

namespace kiln::simulation {

class FairnessWatch {
 public:
  explicit FairnessWatch(const CoreOptions& options) : options_(options) {}

  void incarnation_begins();
  void asked(const RequestReceived& event);
  void ended(const ClientId& client, uint64_t request);  // answered or cancelled
  void gone(const ClientId& client);
  void planned(const PlanFinished& plan);
  // A lease that the worker did not have before. What is wrong, if anything.
  std::optional<std::string> leased(const Job& job);

 private:
  using RequestId = std::pair<ClientId, uint64_t>;
  struct Asked {
    TenantId tenant;
    Digest graph;
    Mode mode;
    bool warm_up = false;
  };
  struct Waiting {
    bool waits = false, warm_up_only = true, served = false;
  };
  std::map<TenantId, Waiting> tenants(const Digest& leased_kernel) const;

  const CoreOptions& options_;
  std::map<RequestId, Asked> open_;
  std::map<std::pair<Digest, Mode>, std::set<Digest>> kernels_of_;  // of planned programs
  std::map<Digest, std::set<std::string>> untouched_;               // by kernel: schedules
  std::map<TenantId, int> passed_over_;
};

}  // namespace kiln::simulation
