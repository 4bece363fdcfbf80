// CompileRequests: every open request and the compile task it waits for. A request is open from
// RequestReceived until its Answer, its cancellation or its client's end, and is answered once;
// whatever comes for it later is ignored. A task that nobody waits for ends, except while the store
// or a planner works on it; its measurements are in the records, so a repeated request resumes.
// One thread; owned by Core.
#pragma once

#include <unordered_map>

#include "coordinator/core/open_program.h"
#include "coordinator/core/requests/detached_queue.h"
#include "coordinator/core/requests/due_list.h"
#include "coordinator/core/requests/open_requests.h"
#include "coordinator/core/requests/user_loads.h"
#include "coordinator/core/scheduling/tuning_scheduler.h"

namespace kiln {

class CompileRequests {
 public:
  CompileRequests(const CoreOptions& options, TuningScheduler& scheduler)
      : options_(options),
        scheduler_(scheduler),
        failures_(options),
        replacement_failures_(options),
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
  void cancel_detached(const Digest& program, Actions& out);
  void taking_back_began(int64_t now_ms, const TakingBackBegan& event, Actions& out);
  void taking_back_ended();
  void kernel_withdrawn(int64_t now_ms, const KernelWithdrawn& event, Actions& out);
  void forget_failures(Actions& out) { detached_.forget_failures(out); }
  // After the scheduler's part of a step: continues programs whose last kernel is done, and fails
  // those that need a kernel which failed.
  void kernels_settled(int64_t now_ms, Actions& out);
  void tick(int64_t now_ms, Actions& out);

  bool is_open(const RequestId& request) const { return open_.find(request) != nullptr; }
  void add_stats(Stats& stats, const Viewer& viewer) const;
  // Programs beyond their look-up, the oldest first. O(programs).
  std::vector<OpenProgram> open_programs(int64_t now_ms, size_t limit) const;

 private:
  OpenProgram open_program(int64_t now_ms, const CompileTask& task) const;
  using Stage = CompileTask::Stage;
  void repeated(int64_t now_ms, const RequestId& id, CompileRequest request, Actions& out);
  bool refuse(int64_t now_ms, const RequestId& id, const TenantId& tenant, const Digest& key,
              const CompileRequest& request, const std::string& user, Actions& out);
  Tenants tenants_of(const CompileTask& task) const;
  void tenants_changed(const CompileTask& task);
  Error overloaded(std::string what);
  Error not_cached(const Target& target) const;
  // Has the request wait for the task that is open under `fresh.key`, or for `fresh`, which is then
  // looked up. `graph_text`: empty until it was asked for.
  void enter(int64_t now_ms, const RequestId& id, CompileTask fresh, CompileTask::Waiter waiter,
             std::string graph_text, Actions& out);
  void join(int64_t now_ms, const RequestId& id, CompileTask& task, CompileTask::Waiter waiter,
            std::string graph_text, Actions& out);
  static void await_look_up(const RequestId& id, CompileTask& task, CompileTask::Waiter waiter,
                            std::string graph_text);
  // provisional_answers.cc
  static bool takes_provisional(const CompileTask& task, const CompileTask::Waiter& waiter);
  bool may_replace(int64_t now_ms, const CompileTask& task);
  void serve(CompileTask& task, const RequestId& id, Actions& out);
  void serve_provisional(CompileTask& task, Actions& out);
  void serve_stale(int64_t now_ms, CompileTask& task, Actions& out);
  // early_answers.cc
  static bool takes_early(const CompileTask::Waiter& waiter);
  void kernels_built(int64_t now_ms, Actions& out);
  void kernel_built(int64_t now_ms, CompileTask& task, const Digest& kernel, Actions& out);
  void await_builds(CompileTask& task);
  bool make_early(CompileTask& task) const;
  void answer_early(int64_t now_ms, CompileTask& task, Actions& out);
  void withdraw_kernel(int64_t now_ms, const Digest& kernel, Actions& out);
  // tier0_answers.cc
  static CompileTask tier0_of(int64_t now_ms, const CompileTask& task);
  static bool takes_tier0(const CompileTask& task, const CompileTask::Waiter& waiter);
  void serve_tier0(int64_t now_ms, CompileTask& task, const std::optional<RequestId>& sender,
                   const std::string& graph_text, Actions& out);
  // taking_back.cc
  bool is_tainted(const CompileTask& task, const TakingBackBegan& event) const;
  void fail_doomed(int64_t now_ms, CompileTask& task, Actions& out);
  // program_stages.cc
  void missed(int64_t now_ms, CompileTask& task, const ProgramLookedUp& event, Actions& out);
  void ask_for_graph(int64_t now_ms, CompileTask& task, Actions& out);
  void start_plan(int64_t now_ms, CompileTask& task, const std::optional<RequestId>& uploader,
                  std::string text, Actions& out);
  bool crowded() const;
  std::optional<Error> user_crowded(const CompileTask& task, int64_t candidates);
  bool may_begin(const std::string& user) const;
  void count_lost(int64_t now_ms, Actions& out);
  Error too_costly(int64_t lost) const;
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
  void send(CompileTask& task, const RequestId& id, CompileReply reply, Actions& out,
            bool is_early = false);
  void send_progress(int64_t now_ms, CompileTask& task, Actions& out);
  CompileTask* find(const Digest& key);
  static Digest failure_key(const Digest& task, const std::string& user);
  // detached_requests.cc
  bool answer_detached(const RequestId& id, const std::string& user, const Digest& key,
                       Actions& out);
  Error queue_is_full();
  bool wanted(const CompileTask& task);
  void save_if_asked(int64_t now_ms, CompileTask& task, Actions& out);
  void answer_queued(CompileTask& task, const Result<CacheOutcome>& outcome, Actions& out);
  void start_detached(int64_t now_ms, Actions& out);

  const CoreOptions& options_;
  TuningScheduler& scheduler_;
  FailureMemory failures_;
  FailureMemory replacement_failures_;  // of programs that are served while they are stale
  DetachedQueue detached_;
  std::unordered_map<Digest, CompileTask> tasks_;
  DueList graphs_due_, progress_due_;  // programs: asked for a graph; tuned
  OpenRequests open_;
  UserLoads loads_;
  int taking_back_ = 0;                                // begun, and not ended
  uint64_t withdrawals_ = 0;                           // tickets
  std::map<uint64_t, std::vector<Digest>> withdrawn_;  // tasks, by ticket
  int64_t graph_bytes_ = 0;                            // of the texts that tasks keep
  int64_t hits_ = 0, misses_ = 0, joined_ = 0, store_failures_ = 0, overloaded_ = 0;
  int64_t answered_early_ = 0, answered_tier0_ = 0;
};

}  // namespace kiln
