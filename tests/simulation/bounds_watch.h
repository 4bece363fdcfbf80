// BoundsWatch: what is open, of whom, and what is queued without a client: whether it stays within
// its bounds (invariant 4), and whether who is refused for a bound is refused rightly. Counts what
// goes in and comes out; knows nothing of how the core counts.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "coordinator/core/events.h"

namespace kiln::simulation {

class BoundsWatch {
 public:
  explicit BoundsWatch(const CoreOptions& options) : options_(options) {}

  void incarnation_begins();
  void saw(const Event& event);
  void saw(const Action& action);
  // Between two steps. What is wrong, if anything.
  std::optional<std::string> saw(const Stats& stats) const;
  // Programs may be planned while there is room for candidates: how many waited before a step that
  // makes some, and after it.
  std::optional<std::string> made_candidates(int64_t before, int64_t after) const;
  // REQUIRES: the request is open.
  bool may_refuse(const ClientId& client, uint64_t request) const;
  bool may_refuse_detached() const;

 private:
  using RequestId = std::pair<ClientId, uint64_t>;
  struct Open {
    Digest program;
    TenantId tenant;
    std::optional<Digest> tier0{};  // of a request with `now`, which waits for one or the other
  };
  Digest key_of(const DetachedTask& task) const;
  std::map<TenantId, int> of_tenant() const;
  void end(const RequestId& id) { open_.erase(id); }
  void went_out(const Digest& program) { ++out_[program]; }
  void came_back(const Digest& program);

  const CoreOptions& options_;
  std::map<RequestId, Open> open_;
  std::map<Digest, int> out_;            // by program: look-ups, plans and stores not answered yet
  std::set<Digest> detached_, storing_;  // queued and not ended; whose graphs are being stored
  std::set<Digest> verifying_;           // answered early, and not stored since
  size_t recovered_ = 0;                 // of detached_, from an earlier incarnation
};

}  // namespace kiln::simulation
