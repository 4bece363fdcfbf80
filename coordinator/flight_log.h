// FlightLog: one line for each program flight's life: which key, who waited, how long each stage
// took. Sees the requests that missed and the actions of the core; keeps what it needs of open
// flights only. One thread.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "coordinator/core/core.h"

namespace kiln {

class FlightLog {
 public:
  using Sink = std::function<void(std::string_view line)>;
  explicit FlightLog(Sink sink) : sink_(std::move(sink)) {}

  void asked(int64_t now_ms, const Digest& key, const ClientId& client,
             const CompileRequest& request);
  void planning(int64_t now_ms, const Digest& key);
  void planned(int64_t now_ms, const PlanFinished& plan);
  void storing(int64_t now_ms, const Digest& key);
  // The line is written when the last one who waited is answered or gone; none for mere look-ups.
  void answered(int64_t now_ms, const ClientId& client, const CompileReply& reply);
  void cancelled(int64_t now_ms, const ClientId& client, uint64_t request);
  void gone(int64_t now_ms, const ClientId& client);

 private:
  using RequestId = std::pair<ClientId, uint64_t>;
  struct Flight {
    std::string target, mode;
    int64_t started_ms = 0, planning_ms = 0, planned_ms = 0, storing_ms = 0;  // 0: not reached
    size_t kernels = 0, cached = 0;
    size_t waiting = 0, requests = 0;
    std::set<ClientId> clients;
    std::string outcome = "abandoned", reason;
  };
  void leave(int64_t now_ms, std::map<RequestId, Digest>::iterator request,
             const CompileReply* reply);
  std::string line(int64_t now_ms, const Digest& key, const Flight& flight) const;

  const Sink sink_;
  std::unordered_map<Digest, Flight> flights_;
  std::map<RequestId, Digest> requests_;  // open ones
};

}  // namespace kiln
