// EarlyWatch: programs that are answered as soon as they are built. Who takes one, that what is stored
// was verified, that whoever has a wrong one hears of it, and that nobody is answered with what was
// withdrawn.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/events.h"

namespace kiln::simulation {

class EarlyWatch {
 public:
  using Complaint = std::optional<std::string>;

  void incarnation_begins();
  // After everything that one event caused.
  Complaint step_ends();
  Complaint leased(const WorkerReport& worker, const Job& job) const;
  void recorded(const TuningRecord& record, Job::Kind kind);
  // The full disk kept it out of the store, so that the candidate may be tried again.
  void lost(const TuningRecord& record) {
    refuted_.erase({record.kernel_key, record.schedule.to_string()});
  }
  void shared(const ShareBinary& binary) { shared_.insert(binary.digest); }
  Complaint answered(const CompileRequest& request, const Answer& answer);
  void stored(const StoreKernel& store);
  void withdrawn(const WithdrawKernel& action);
  void revoked(const Digest& kernel, int64_t through);

 private:
  using Choice = std::pair<Digest, std::string>;  // kernel key, schedule

  std::map<Digest, int64_t> revoked_;  // kernels: through this serial; in whatever incarnation
  // In this incarnation of the coordinator:
  std::set<Choice> verified_, refuted_, handed_out_;
  std::set<Digest> owed_;       // kernels that are to be withdrawn in this step
  std::vector<Choice> stored_;  // without a final, in this step; its records come after them
  std::set<Digest> shared_;
};

}  // namespace kiln::simulation
