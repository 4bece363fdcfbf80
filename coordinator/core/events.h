// The core's vocabulary: ids, options, what may happen (Event) and what the shell should then do
// (Action). Plain values. Everything else in core/ stands above this file.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "compiler_core/program/audience.h"
#include "compiler_core/program/offered_kernel.h"
#include "schema/messages.h"

namespace kiln {

using ClientId = std::string;  // one connection of a client
using TenantId =
    std::string;  // gets a fair share of the workers: a user, or an anonymous connection
using WorkerId = std::string;  // WorkerReport.worker: a reconnected worker is the same worker

struct CoreOptions {
  // This build's. A worker that has one at another version, or not at all, gets no candidates of
  // it.
  TemplateVersions templates;
  MeasurementPolicy policy;
  int batch_size = 4;               // candidates of a lease while their latency is unknown
  int gpu_batch_size = 32;          // the same for GPUs
  int64_t lease_work_ms = 1'500;    // the work of a lease, once the latency is known
  int max_batch = 64;               // candidates of any lease
  double hedge_after = 3.0;         // this many times the median: also given to a second worker
  int64_t hedge_least_ms = 1'000;   // but never sooner
  int warm_up_turn = 8;             // one lease in this many goes to warm-up, while both wait
  int max_open_requests = 100'000;  // beyond it: overloaded
  int max_open_requests_a_client = 20'000;    // so that one tenant cannot take every place
  int64_t max_candidates_queued = 2'000'000;  // beyond it no new program is tuned: overloaded
  int64_t max_graph_bytes_kept = 256 << 20;   // of programs being tuned, in case they are queued
  int64_t max_unverified_bytes = 256 << 20;   // of binaries; beyond it nothing is built ahead
  int64_t build_ahead_ms = 2'000;             // of each device's time, in built candidates
  int64_t retry_after_ms = 1'000;             // what an overloaded client is told
  int max_retries = 3;                        // per candidate, for transient failures
  int max_runner_deaths = 3;                  // a candidate that killed so many is abandoned
  int64_t transient_memory_ms = 10'000;       // see failures.h
  double calibration_drift = 0.25;            // off a worker's own baseline: quarantined
  // A winner is confirmed before it is served (tuning/votes.h). 2: by a worker with another key, or
  // it is not served; 1: by such a worker where there is one; 0: by none. Where no other key's
  // worker is, or is asked, another worker confirms one winner in sample_one_in; 0: none.
  int confirm = 1;
  int sample_one_in = 0;
  uint64_t sample_seed = 0;               // that no worker knows
  int64_t quarantine_ms = 30'000;         // ends after so long without a bad reading
  int64_t lease_timeout_ms = 30'000;      // without progress
  int64_t worker_timeout_ms = 10'000;     // without a report
  int64_t max_waiting_for_worker_ms = 0;  // 0: a target that no worker has fails at once
  // Workers of an earlier incarnation need a moment to connect and report: until then a target that
  // was not seen yet may still come.
  int64_t fleet_returns_ms = 3'000;
  int64_t worker_grace_ms = 30'000;  // waited for a target whose workers all left
  int64_t graph_timeout_ms = 5'000;  // then another waiting client is asked for the graph
  int64_t progress_interval_ms = 200;
  int64_t failure_memory_ms = 600'000;  // repeated requests fail fast so long
  int max_failures_remembered = 4'096;
  int max_detached = 10'000;      // programs queued without a client; beyond it: overloaded
  int max_detached_running = 32;  // of them at once
  int max_lost = 3;               // processes of workers that such a program may cost
  // Programs planned or tuned on behalf of one user. Nor has a user more of the candidates that wait,
  // of the programs queued or of the graphs that wait than are left for the others.
  int max_tasks_a_user = 2'000;
  // Lease ids and epochs count up from here. Workers outlive coordinators, so no earlier
  // incarnation may have used one of these: the shell counts its incarnations on disk
  // (generation.h), because a wall clock may be set back.
  uint64_t first_lease = 1;
};

// True for a GPU target without a device ("cuda:sm_90a"). Programs are made for a device, so the
// connected workers decide which one is meant (Core::resolve).
inline bool names_no_device(const Target& target) {
  return target.backend == Backend::kCuda && !target.isa.empty() && target.device_model.empty() &&
         target.units == 0;
}

// The task that makes a program for an audience: requests of one audience share it. Others must not
// learn that it goes on, and show with their graph that they may have the program.
inline Digest task_key(const Digest& program, const Audience& audience) {
  if (audience.is_all()) return program;
  return Hasher("kiln.task.v1").add(program).add(audience.to_text()).finish();
}

// ---- What happened ----
// The request's target has been through Core::resolve. `user`: the authenticated name, which is the
// tenant; if empty, the connection is a tenant of its own.
struct RequestReceived {
  ClientId client;
  CompileRequest request;
  std::string user{};
  // program_key() of the request, if the shell has computed it already.
  std::optional<Digest> key{};
  Audience audience{};  // of what is tuned for it
  Viewer viewer{};      // who may be answered with what is stored
};
struct RequestCancelled {
  ClientId client;
  uint64_t request = 0;
};
struct ClientGone {
  ClientId client;
};
struct ProgramLookedUp {
  Digest key;                // the task's
  std::string program_json;  // empty: a miss, or a stale program that must not be served
  Status read{};             // why the store could not tell; then --check gets no miss
  // Other templates made the program that there is: it is served while its successor is made. Its
  // kernels may all be good still, so that it can be planned without a worker.
  bool stale = false;
  Audience audience{};       // of the program
  bool memory_only = false;  // as in CompileReply: it waits on the coordinator's disk for the store
};
struct PlannedKernel {
  Digest key, workload;
  Family family = Family::kPointwise;
  std::string workload_text;
  std::vector<Schedule> schedules;      // the search space, best guess first
  std::optional<ProgramKernel> cached;  // the store has a winner, and its blob
  std::vector<TuningRecord> records;    // earlier measurements, not repeated; raw, oldest first
  TemplateVersions templates{};         // that cover it; those of `schedules` are among them
  // The templates of `schedules` that call a library of the worker's machine, and which.
  std::map<std::string, std::string> libraries{};
  double impossible_us = 0;  // no device is as fast (tune/device_peak.h); 0: not known
  // Finished binaries that somebody offers, by the template of `schedules` that each is.
  std::map<std::string, OfferedKernel> offered{};
  // Templates of `schedules` that are expected to be far behind: their candidates are tried where no
  // other one of Kiln's own came out right. Not all of its own are of these.
  std::set<std::string> reserves{};
  // Whether those of `schedules` that are much like another may be passed over where that one is far
  // behind (tuning_variants.cc).
  bool has_variants = false;
};
// Another partition of a program into kernels, where the planner cannot tell which is faster.
struct PlannedAlternative {
  Program program;           // as PlanFinished::program
  std::vector<int> kernels;  // its kernels in order, as positions in PlanFinished::kernels
};
// `program` is complete except for its kernels, which the core fills in the order of `kernels`;
// those that only alternatives need come last. kInvalidArgument blames the client that sent the
// graph text, and another one is asked.
struct PlanFinished {
  Digest key;
  Result<Program> program;
  std::vector<PlannedKernel> kernels;
  std::vector<PlannedAlternative> alternatives{};  // all are tuned, and the fastest is answered
};
// The weight of a worker's word, by its key (Trust in schema/keys/grant.h).
struct Standing {
  bool times_finals = true;  // else its word alone never makes a winner, and it confirms none
  bool is_enough = false;    // nobody need confirm its winners
  bool operator==(const Standing&) const = default;
};
struct ReportReceived {
  WorkerId worker;
  WorkerReport report;
  std::shared_ptr<const TemplateVersions> templates{};  // of its Hello; null: it has none
  std::string owner{};  // the name of its key; empty: there are none
  Standing standing{};
};
struct WorkerGone {
  WorkerId worker;
};
// An operator wants the worker to finish its leases and to exit.
struct DrainRequested {
  WorkerId worker;
};
struct KernelStored {
  Digest kernel;
  Status status;
};
struct ProgramStored {
  Digest key;  // the task's
  Status status;
};
// The records are durable, so the worker may forget them. Also sent when the store failed for good
// (a full disk): the task has the result, and the worker could do nothing with it.
struct RecordsStored {
  WorkerId worker;
  std::vector<ResultAck> acks;
};
// A program that is tuned without a client (CompileRequest::detach); the store keeps it with the
// text of its graph.
struct DetachedTask {
  Digest graph;
  Target target;
  Mode mode = Mode::kDefault;
  Audience audience{};
  std::string owner{};  // the user that queued it; empty: without a key
  int64_t lost = 0;     // processes of workers that it has cost, in all incarnations
  Digest program() const { return program_key(graph, target, mode); }
};
struct DetachedStored {
  Digest key;  // the task's, as in PlanFinished
  DetachedTask task;
  Status status;
};
// At the start, one for each task in the store. `failure`: why it failed for good.
struct DetachedRecovered {
  DetachedTask task;
  std::optional<Error> failure{};
};
// An operator has seen why detached tasks failed; they are reported no more.
struct ForgetFailures {};
// An operator wants this queued, running or failed program forgotten, for whatever audience; clients
// that wait for it are served all the same.
struct CancelDetached {
  Digest program;
};
// An operator takes results back. Began: what goes on with them ends as kOverloaded, to be asked for
// again, and until as many Ended no plan is believed, since it may have read what is being removed.
struct TakingBackBegan {
  std::set<Digest> programs, kernels;
  std::set<WorkerId> workers;    // whatever they had a part in
  std::set<std::string> owners;  // the same, by the names of keys
  bool everything = false;       // that is being tuned
};
struct TakingBackEnded {};
// A WithdrawKernel is carried out, or could not be made durable.
struct KernelWithdrawn {
  uint64_t ticket = 0;
  int64_t serial = 0;  // for programs that are made with the kernel's next choice
};
struct Tick {};  // about every 100 ms
using Event =
    std::variant<RequestReceived, RequestCancelled, ClientGone, ProgramLookedUp, PlanFinished,
                 ReportReceived, WorkerGone, DrainRequested, KernelStored, ProgramStored,
                 RecordsStored, DetachedStored, DetachedRecovered, ForgetFailures, CancelDetached,
                 TakingBackBegan, TakingBackEnded, KernelWithdrawn, Tick>;

// ---- What to do ---- The shell answers each look-up, plan and store with its event exactly once,
// if need be with an error.
struct LookUpProgram {
  Digest key;  // the task's
  Digest program;
};
struct AskForGraph {
  ClientId client;
  uint64_t request = 0;
};
struct StartPlan {
  Digest key;
  Digest graph;
  Target target;
  Mode mode;
  std::string graph_text;  // empty: the stored task has it
  Audience audience{};
};
struct Answer {
  ClientId client;
  CompileReply reply;
  bool is_early = false;  // not all kernels are verified
};
struct SendProgress {
  ClientId client;
  Progress progress;
};
struct SendOrders {
  WorkerId worker;
  WorkerOrders orders;
};
// The shell fills in taken_at_ms: the core knows no wall clock.
struct StoreRecords {
  WorkerId worker;
  std::vector<TuningRecord> records;
  std::vector<ResultAck> acks;
};
// If storing fails, the shell holds the binary for a while, since the program is still answered.
struct StoreKernel {
  ProgramKernel kernel;
  Target tuned_on;
  std::string binary;
  std::string workload_text{};  // PlannedKernel's
};
// Only when every kernel of it is stored.
struct StoreProgram {
  Program program;
  Digest task;
  Audience audience{};
};
// Durable before DetachedStored says so. What is stored of the same task already is replaced.
struct StoreDetached {
  Digest key;
  DetachedTask task;
  std::string graph_text;
};
// It is done, and forgotten; or it failed for good, and the store keeps why, without the text.
struct EndDetached {
  Digest key;
  DetachedTask task;
  Status outcome;
  bool cancelled = false;  // then `outcome` is none
};
// So many have failed since, or an operator has seen it, that why this one did is forgotten, by the
// store too.
struct ForgetDetached {
  DetachedTask task;
};
// Durable soon: what the task has cost (DetachedTask::lost).
struct StoreLost {
  DetachedTask task;
};
// A binary of a program that is answered before it is verified: clients ask for it next. Comes again
// while the program is answered so.
struct ShareBinary {
  Digest digest;
  std::string binary;
};
// A kernel that was answered unverified is wrong: programs with it, up to now, are revoked. What is
// known of its candidates stays. Answered with KernelWithdrawn.
struct WithdrawKernel {
  Digest kernel;
  uint64_t ticket = 0;
};
// It was answered and could not be stored: from memory it is served for a while, since tuning it
// again for everybody who asks would help nobody.
struct KeepProgram {
  std::string program_json;
  Digest task;
  Audience audience{};
};
// For the log: candidates of a kernel were given up after failures that may pass came again and
// again, the last time on `worker`.
struct LogAbandoned {
  Digest kernel;
  Family family = Family::kPointwise;
  Target target;
  WorkerId worker;
  int candidates = 0;
};
// Two others contradicted this worker's word on a kernel: it gets no work any more, and what it
// reported is to be taken back.
struct Distrust {
  WorkerId worker;
  std::string owner;
  Digest kernel;
  std::string why;
};
// For the log: workers do not agree about a candidate, and nobody is there to decide.
struct LogDisputed {
  Digest kernel;
  std::string why;
};
using Action = std::variant<LookUpProgram, AskForGraph, StartPlan, Answer, SendProgress, SendOrders,
                            StoreRecords, StoreKernel, StoreProgram, StoreDetached, EndDetached,
                            ForgetDetached, StoreLost, KeepProgram, ShareBinary, WithdrawKernel,
                            LogAbandoned, Distrust, LogDisputed>;
using Actions = std::vector<Action>;

}  // namespace kiln
