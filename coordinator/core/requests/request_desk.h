// RequestDesk: every open request and the program flight it waits for. Answers each request once:
// a request is open from RequestReceived until its Answer, its cancellation or its client's end;
// anything that comes for it later is ignored. A flight that nobody waits for is abandoned, except
// while the store or a planner works on it; what was measured is in the records, so that asking
// again resumes. One thread; owned by Core.
#pragma once

#include <unordered_map>

#include "coordinator/core/requests/detached_queue.h"
#include "coordinator/core/requests/due_list.h"
#include "coordinator/core/requests/open_requests.h"
#include "coordinator/core/scheduling/tuning_floor.h"

namespace kiln {

class RequestDesk {
 public:
  RequestDesk(const CoreOptions& options, TuningFloor& floor)
      : options_(options), floor_(floor), failures_(options), detached_(options), open_(options) {}

  // `user`: empty, or who the client is.
  void request(int64_t now_ms, const ClientId& client, const std::string& user,
               CompileRequest request, Actions& out);
  void cancel(int64_t now_ms, const RequestId& request, Actions& out);
  void client_gone(int64_t now_ms, const ClientId& client, Actions& out);
  void looked_up(int64_t now_ms, const ProgramLookedUp& event, Actions& out);
  void plan_finished(int64_t now_ms, PlanFinished event, Actions& out);
  void program_stored(int64_t now_ms, const ProgramStored& event, Actions& out);
  void flight_stored(int64_t now_ms, const FlightStored& event, Actions& out);
  void flight_recovered(const FlightRecovered& event, Actions& out);
  void forget_failures(Actions& out) { detached_.forget_failures(out); }
  // After whatever the floor did: programs whose last kernel is done, or one of them failed.
  void kernels_settled(int64_t now_ms, Actions& out);
  void tick(int64_t now_ms, Actions& out);

  bool is_open(const RequestId& request) const { return open_.find(request) != nullptr; }
  void add_stats(Stats& stats) const;

 private:
  using Stage = ProgramFlight::Stage;
  void repeated(int64_t now_ms, const RequestId& id, CompileRequest request, Actions& out);
  bool refuse(int64_t now_ms, const RequestId& id, const ShareId& share, const Digest& key,
              const CompileRequest& request, Actions& out);
  Demand demand_of(const ProgramFlight& flight) const;
  void demand_changed(const ProgramFlight& flight);
  Error overloaded(std::string what);
  Error not_cached(const Target& target) const;
  void join(int64_t now_ms, const RequestId& id, ProgramFlight& flight, CompileRequest request,
            Actions& out);
  void await_look_up(const RequestId& id, ProgramFlight& flight, CompileRequest request);
  // program_stages.cc
  void missed(int64_t now_ms, ProgramFlight& flight, const Status& read, Actions& out);
  void ask_for_graph(int64_t now_ms, ProgramFlight& flight, Actions& out);
  void start_plan(int64_t now_ms, ProgramFlight& flight, const std::optional<RequestId>& uploader,
                  std::string text, Actions& out);
  bool crowded() const;
  void fail_crowded(int64_t now_ms, ProgramFlight& flight, Actions& out);
  void keep_graph(ProgramFlight& flight, const std::string& text);
  void drop_graph(ProgramFlight& flight);
  void plan_failed(int64_t now_ms, ProgramFlight& flight, const Error& error, Actions& out);
  void start_tuning(int64_t now_ms, ProgramFlight& flight, PlanFinished event, Actions& out);
  void kernel_settled(int64_t now_ms, ProgramFlight& flight, const KernelFlight& kernel,
                      Actions& out);
  void kernels_done(int64_t now_ms, ProgramFlight& flight, Actions& out);
  void finish(int64_t now_ms, ProgramFlight& flight, const Status& stored, Actions& out);
  void fail_flight(int64_t now_ms, ProgramFlight& flight, const Error& error, Actions& out);
  void withdraw(int64_t now_ms, const std::vector<RequestId>& ids, Actions& out);
  void abandon(ProgramFlight& flight);
  void end(ProgramFlight& flight);
  void answer(ProgramFlight& flight, const RequestId& id, Result<CacheOutcome> outcome,
              const std::string& program_json, Actions& out, bool memory_only = false);
  void send_progress(int64_t now_ms, ProgramFlight& flight, Actions& out);
  ProgramFlight* find(const Digest& key);
  // detached_requests.cc
  bool answer_detached(const RequestId& id, const Digest& key, Actions& out);
  bool wanted(const ProgramFlight& flight);
  void save_if_asked(int64_t now_ms, ProgramFlight& flight, Actions& out);
  void answer_queued(ProgramFlight& flight, const Result<CacheOutcome>& outcome, Actions& out);
  void start_detached(int64_t now_ms, Actions& out);

  const CoreOptions& options_;
  TuningFloor& floor_;
  FailureMemory failures_;
  DetachedQueue detached_;
  std::unordered_map<Digest, ProgramFlight> flights_;
  DueList graphs_due_, progress_due_;  // programs: asked for a graph; tuned
  OpenRequests open_;
  int64_t graph_bytes_ = 0;  // of the texts that flights keep
  int64_t hits_ = 0, misses_ = 0, joined_ = 0, store_failures_ = 0, overloaded_ = 0;
};

}  // namespace kiln
