// CompileRequests: every open request and the compile task it waits for. A request is open from
// RequestReceived until its Answer, its cancellation or its client's end, and is answered once;
// whatever comes for it later is ignored. A task that nobody waits for ends, except while the store
// or a planner works on it; its measurements are in the records, so a repeated request resumes.
// One thread; owned by Core.
#pragma once

#include <unordered_map>

#include "coordinator/core/requests/detached_queue.h"
#include "coordinator/core/requests/due_list.h"
#include "coordinator/core/requests/open_requests.h"
#include "coordinator/core/scheduling/tuning_scheduler.h"

namespace kiln {

class CompileRequests {
 public:
  CompileRequests(const CoreOptions& options, TuningScheduler& scheduler)
      : options_(options),
        scheduler_(scheduler),
        failures_(options),
        detached_(options),
        open_(options) {}

  void request(int64_t now_ms, RequestReceived event, Actions& out);
  void cancel(int64_t now_ms, const RequestId& request, Actions& out);
  void client_gone(int64_t now_ms, const ClientId& client, Actions& out);
  void looked_up(int64_t now_ms, const ProgramLookedUp& event, Actions& out);
  void plan_finished(int64_t now_ms, PlanFinished event, Actions& out);
  void program_stored(int64_t now_ms, const ProgramStored& event, Actions& out);
  void detached_stored(int64_t now_ms, const DetachedStored& event, Actions& out);
  void detached_recovered(const DetachedRecovered& event, Actions& out);
  void forget_failures(Actions& out) { detached_.forget_failures(out); }
  // After the scheduler's part of a step: continues programs whose last kernel is done, and fails
  // those that need a kernel which failed.
  void kernels_settled(int64_t now_ms, Actions& out);
  void tick(int64_t now_ms, Actions& out);

  bool is_open(const RequestId& request) const { return open_.find(request) != nullptr; }
  void add_stats(Stats& stats) const;

 private:
  using Stage = CompileTask::Stage;
  void repeated(int64_t now_ms, const RequestId& id, CompileRequest request, Actions& out);
  bool refuse(int64_t now_ms, const RequestId& id, const TenantId& tenant, const Digest& key,
              const CompileRequest& request, Actions& out);
  Tenants tenants_of(const CompileTask& task) const;
  void tenants_changed(const CompileTask& task);
  Error overloaded(std::string what);
  Error not_cached(const Target& target) const;
  void join(int64_t now_ms, const RequestId& id, CompileTask& task, CompileRequest request,
            Actions& out);
  void await_look_up(const RequestId& id, CompileTask& task, CompileRequest request);
  // program_stages.cc
  void missed(int64_t now_ms, CompileTask& task, const ProgramLookedUp& event, Actions& out);
  void ask_for_graph(int64_t now_ms, CompileTask& task, Actions& out);
  void start_plan(int64_t now_ms, CompileTask& task, const std::optional<RequestId>& uploader,
                  std::string text, Actions& out);
  bool crowded() const;
  void fail_crowded(int64_t now_ms, CompileTask& task, Actions& out);
  void keep_graph(CompileTask& task, const std::string& text);
  void drop_graph(CompileTask& task);
  void plan_failed(int64_t now_ms, CompileTask& task, const Error& error, Actions& out);
  void start_tuning(int64_t now_ms, CompileTask& task, PlanFinished event, Actions& out);
  void kernel_settled(int64_t now_ms, CompileTask& task, const TuningTask& kernel, Actions& out);
  void kernels_done(int64_t now_ms, CompileTask& task, Actions& out);
  void finish(int64_t now_ms, CompileTask& task, const Status& stored, Actions& out);
  void fail_task(int64_t now_ms, CompileTask& task, const Error& error, Actions& out);
  void withdraw(int64_t now_ms, const std::vector<RequestId>& ids, Actions& out);
  void end_unless_busy(CompileTask& task);
  void end(CompileTask& task);
  void answer(CompileTask& task, const RequestId& id, Result<CacheOutcome> outcome,
              const std::string& program_json, Actions& out, bool memory_only = false);
  void send_progress(int64_t now_ms, CompileTask& task, Actions& out);
  CompileTask* find(const Digest& key);
  // detached_requests.cc
  bool answer_detached(const RequestId& id, const Digest& key, Actions& out);
  bool wanted(const CompileTask& task);
  void save_if_asked(int64_t now_ms, CompileTask& task, Actions& out);
  void answer_queued(CompileTask& task, const Result<CacheOutcome>& outcome, Actions& out);
  void start_detached(int64_t now_ms, Actions& out);

  const CoreOptions& options_;
  TuningScheduler& scheduler_;
  FailureMemory failures_;
  DetachedQueue detached_;
  std::unordered_map<Digest, CompileTask> tasks_;
  DueList graphs_due_, progress_due_;  // programs: asked for a graph; tuned
  OpenRequests open_;
  int64_t graph_bytes_ = 0;  // of the texts that tasks keep
  int64_t hits_ = 0, misses_ = 0, joined_ = 0, store_failures_ = 0, overloaded_ = 0;
};

}  // namespace kiln
