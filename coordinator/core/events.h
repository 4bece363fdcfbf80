// The core's vocabulary: ids, options, what may happen (Event) and what the shell should then do
// (Action). Plain values. Everything else in core/ stands above this file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "schema/messages.h"

namespace kiln {

using ClientId = std::string;  // one connection of a client
using ShareId = std::string;   // who work is shared out among: a user, or a connection without one
using WorkerId = std::string;  // WorkerReport.worker: a reconnected worker is the same worker

struct CoreOptions {
  Digest codegen;
  MeasurementPolicy policy;
  int batch_size = 4;               // candidates of a lease while nothing is known of their pace
  int gpu_batch_size = 32;          // the same for GPUs
  int64_t lease_work_ms = 1'500;    // how long a lease's work should take, once its pace is known
  int max_batch = 64;               // candidates of any lease
  double hedge_after = 3.0;         // times as late as the median says: given to a second worker
  int64_t hedge_least_ms = 1'000;   // and never before
  int warm_up_turn = 8;             // one lease of so many goes to warm-up, while both wait
  int max_open_requests = 100'000;  // beyond it: overloaded
  int max_open_requests_a_client = 20'000;    // so that one share cannot take every place
  int64_t max_candidates_queued = 2'000'000;  // beyond it no new program is tuned: overloaded
  int64_t max_graph_bytes_kept = 256 << 20;   // of programs being tuned, for who asks to queue them
  int64_t retry_after_ms = 1'000;             // what an overloaded client is told
  int max_retries = 3;                        // per candidate, for transient failures
  int max_runner_deaths = 3;                  // a candidate that killed so many is set aside
  int64_t transient_memory_ms = 10'000;       // see failure_memory.h
  double sentinel_drift = 0.25;               // of a worker's own baseline: quarantined
  int64_t quarantine_ms = 30'000;             // it leaves after so long without a bad reading
  int64_t lease_timeout_ms = 30'000;          // without progress
  int64_t worker_timeout_ms = 10'000;         // without a report
  // 0: a target nobody has fails at once. But the workers of an earlier life need a moment to
  // connect and report: so long into this one, a target that was not seen yet may come.
  int64_t fleet_returns_ms = 3'000;
  int64_t max_waiting_for_worker_ms = 0;
  int64_t worker_grace_ms = 30'000;  // a target whose workers all went away since
  int64_t graph_timeout_ms = 5'000;  // then another waiting client is asked for the graph
  int64_t progress_interval_ms = 200;
  int64_t failure_memory_ms = 600'000;  // repeated asks for what failed for good fail fast so long
  int max_failures_remembered = 4'096;
  int max_detached = 10'000;      // programs queued without a client; beyond it: overloaded
  int max_detached_running = 32;  // of them at once
  // Lease ids and epochs count up from here. Workers outlive coordinators, so no earlier life may
  // have used one from here on: the shell counts its lives on disk (generation.h), because a wall
  // clock may be set back.
  uint64_t first_lease = 1;
};

// A GPU's target without a device ("cuda:sm_90a"). What is made for it depends on the device, so
// the workers there are say which is meant (Core::resolve).
inline bool names_no_device(const Target& target) {
  return target.backend == Backend::kCuda && !target.isa.empty() && target.device_model.empty() &&
         target.units == 0;
}

// ---- What happened ----
// The request's target is what Core::resolve made of it: keys are of what is made. `user`: who it
// is, as the wire authenticated it; work is shared out among users. Empty: the connection is a
// share of its own.
struct RequestReceived {
  ClientId client;
  CompileRequest request;
  std::string user{};
};
struct RequestCancelled {
  ClientId client;
  uint64_t request = 0;
};
struct ClientGone {
  ClientId client;
};
struct ProgramLookedUp {
  Digest key;
  std::string program_json;  // empty: a miss
  Status read{};             // why the store could not tell: no miss to whoever only checks
};
struct PlannedKernel {
  Digest key, workload;
  Family family = Family::kPointwise;
  std::string workload_text;
  std::vector<Schedule> schedules;      // the search space, best guess first
  std::optional<ProgramKernel> cached;  // the store has a winner, and its blob
  std::vector<TuningRecord> records;    // measured before: not taken again; raw, oldest first
};
// Another way to cut a program into kernels, where the planner cannot tell which is faster.
struct PlannedAlternative {
  Program program;           // as PlanFinished::program
  std::vector<int> kernels;  // its kernels in order, as positions in PlanFinished::kernels
};
// program: complete but for `kernels`, which the core fills in the order of `kernels` below; those
// that only alternatives need come last. kInvalidArgument blames the graph text of the client that
// sent it: another one is asked.
struct PlanFinished {
  Digest key;
  Result<Program> program;
  std::vector<PlannedKernel> kernels;
  std::vector<PlannedAlternative> alternatives{};  // all are tuned, and the fastest is answered
};
struct ReportReceived {
  WorkerId worker;
  WorkerReport report;
};
struct WorkerGone {
  WorkerId worker;
};
// An operator wants it to finish what it has and to exit.
struct DrainRequested {
  WorkerId worker;
};
struct KernelStored {
  Digest kernel;
  Status status;
};
struct ProgramStored {
  Digest key;
  Status status;
};
// Durable, so the worker may forget them. Also sent when the store failed for good (a full disk):
// the flight has the result, and the worker could do nothing with it.
struct RecordsStored {
  WorkerId worker;
  std::vector<ResultAck> acks;
};
// A program that goes on without a client (CompileRequest::detach); the store keeps it with the
// text of its graph. It names no code generator: after an upgrade it is tuned for the new one.
struct DetachedFlight {
  Digest graph;
  Target target;
  Mode mode = Mode::kDefault;
};
struct FlightStored {
  Digest key;
  DetachedFlight flight;
  Status status;
};
// At the start, one for each that the store has. `failure`: why it failed for good.
struct FlightRecovered {
  DetachedFlight flight;
  std::optional<Error> failure{};
};
// An operator has seen why detached flights failed: they are told about no more.
struct ForgetFailures {};
struct Tick {};  // about every 100 ms
using Event =
    std::variant<RequestReceived, RequestCancelled, ClientGone, ProgramLookedUp, PlanFinished,
                 ReportReceived, WorkerGone, DrainRequested, KernelStored, ProgramStored,
                 RecordsStored, FlightStored, FlightRecovered, ForgetFailures, Tick>;

// ---- What to do ----
// Each look-up, plan and store is answered by its event exactly once, with an error if need be.
struct LookUpProgram {
  Digest key;
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
  std::string graph_text;  // empty: that of the stored flight
};
struct Answer {
  ClientId client;
  CompileReply reply;
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
// When storing fails the shell keeps the binary for a while, since the program is still answered.
struct StoreKernel {
  ProgramKernel kernel;
  Target tuned_on;
  std::string binary;
};
struct StoreProgram {
  Program program;
};  // only when every kernel of it is stored
// Durable before FlightStored says so. What is stored of the same flight already is replaced.
struct StoreFlight {
  Digest key;
  DetachedFlight flight;
  std::string graph_text;
};
// It is done, and forgotten; or it failed for good, and the store keeps why, without the text.
struct EndFlight {
  DetachedFlight flight;
  Status outcome;
};
// So many have failed since, or an operator has seen it, that why this one did is forgotten, by the
// store too.
struct ForgetFlight {
  DetachedFlight flight;
};
// It was answered and could not be stored: from memory it is served for a while, since tuning it
// again for everybody who asks would help nobody.
struct KeepProgram {
  std::string program_json;
};
// For the log: candidates of a kernel were given up after failures that may pass came again and
// again, the last time on `worker`.
struct LogSetAside {
  Digest kernel;
  Family family = Family::kPointwise;
  Target target;
  WorkerId worker;
  int candidates = 0;
};
using Action = std::variant<LookUpProgram, AskForGraph, StartPlan, Answer, SendProgress, SendOrders,
                            StoreRecords, StoreKernel, StoreProgram, StoreFlight, EndFlight,
                            ForgetFlight, KeepProgram, LogSetAside>;
using Actions = std::vector<Action>;

}  // namespace kiln
