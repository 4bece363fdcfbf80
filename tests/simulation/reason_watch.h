// ReasonWatch: whether who is refused a program is told a reason that is true of the world: of the
// program, of its candidates, of the workers, of what the client itself sent (invariant 2, and for
// queued programs 6). Bounds are BoundsWatch's. Knows nothing of how the core decides.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "coordinator/core/events.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/truth.h"

namespace kiln::simulation {

class ReasonWatch {
 public:
  ReasonWatch(const Truth& truth, const Scenario& scenario, const CoreOptions& options)
      : truth_(truth), scenario_(scenario), options_(options) {}

  void incarnation_begins(int64_t now_ms);
  void saw(int64_t now_ms, const Event& event);
  void asked_for_graph(const ClientId& client, uint64_t request) { ++asks_[{client, request}]; }
  // A lease of it ended without a result, or its result says nothing of the candidate itself.
  void troubled(const Digest& kernel, const std::string& schedule) {
    troubled_.emplace(kernel, schedule);
  }
  void withdrawn(const Digest& kernel) { withdrawn_.insert(kernel); }
  bool was_troubled(const Digest& kernel) const {
    const auto first = troubled_.lower_bound({kernel, {}});
    return first != troubled_.end() && first->first == kernel;
  }
  // The fault of the reason, if it has one.
  std::optional<std::string> refused(int64_t now_ms, const ClientId& client,
                                     const CompileRequest& request, const Error& error) const;
  std::optional<std::string> failed(const DetachedTask& task, const Error& error) const;

 private:
  using RequestId = std::pair<ClientId, uint64_t>;
  struct Known {
    Target target;
    int64_t seen_ms = 0;
    bool failed = false, drains = false;  // as any of its reports says: they come out of order
  };
  bool no_alternative_survives(const TrueProgram& program, const Target& target, Mode mode) const;
  bool uses_withdrawn(const TrueProgram& program, const CompileRequest& request) const;
  bool certainly_serves(int64_t now_ms, const Target& target) const;
  bool lacks_reason(int64_t now_ms, const RequestId& id, const CompileRequest& request,
                    const Error& error) const;

  const Truth& truth_;
  const Scenario& scenario_;
  const CoreOptions& options_;
  // In this incarnation of the coordinator:
  int64_t began_ms_ = 0;
  std::map<WorkerId, Known> workers_;
  std::set<std::string> targets_seen_;
  std::set<RequestId> sent_garbage_;
  std::map<RequestId, int> asks_;
  std::set<Digest> unstored_;       // programs whose graphs the store did not take
  std::map<Digest, Target> asked_;  // programs
  std::set<Digest> unserved_;  // of them: no worker of the target was certain since they were asked
  std::set<std::pair<Digest, std::string>> troubled_;
  std::set<Digest> withdrawn_;  // kernels
};

}  // namespace kiln::simulation
