// Core: the coordinator's decisions as a pure state machine. No I/O, no clock, no threads, no
// randomness: step(now, event) changes the state and returns what the shell (service.h) should do.
// One thread.
//
// A program flight is the work everyone shares who asks for one ProgramKey; it waits for kernel
// flights, one per KernelKey, shared by programs.
//
//   program flight:  start -> wait_graph -> planning -> looking_up -> tuning -> storing -> answered
//   kernel flight:   queued -> screening -> finals -> storing -> done | failed
//
// (the .cc names the function behind each transition). Invariants, checked by the simulation tests:
//  1. at most one accepted winner per kernel key and epoch; results under a stale epoch change
//     nothing but are acknowledged;
//  2. every accepted request ends in exactly one answer, whatever dies;
//  3. a finished measurement is never taken again because of a crash elsewhere;
//  4. no queue exceeds its bound: beyond it a request is answered `overloaded`;
//  5. "stored" is answered only after the store said so, or after it failed and said so (the program
//     is still returned).
#pragma once

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "schema/messages.h"

namespace kiln {

using ClientId = std::string;
using WorkerId = std::string;

struct CoreOptions {
  Digest codegen;
  MeasurementPolicy policy;
  int batch_size = 4;               // candidates a lease, while more workers could help
  int max_open_requests = 100'000;
  int max_retries = 3;              // per candidate, for transient failures
  int64_t lease_timeout_ms = 30'000;   // without progress
  int64_t worker_timeout_ms = 10'000;  // without a report
  int64_t max_waiting_for_worker_ms = 0;  // 0: a target nobody has fails at once
};

// ---- What happened ----
struct RequestReceived { ClientId client; CompileRequest request; };
struct RequestCancelled { ClientId client; uint64_t request = 0; };
struct ClientGone { ClientId client; };
struct ProgramLookedUp { Digest key; std::string program_json; };       // empty: a miss
struct PlannedKernel {
  Digest key, workload;
  Family family = Family::kPointwise;
  std::string workload_text;
  std::vector<Schedule> schedules;          // the search space, best guess first
  std::optional<ProgramKernel> cached;      // the store has a winner
  std::vector<TuningRecord> records;        // measured before a crash: not taken again
};
struct PlanFinished { Digest key; Result<Program> program; std::vector<PlannedKernel> kernels; };
struct ReportReceived { WorkerId worker; WorkerReport report; };
struct WorkerGone { WorkerId worker; };
struct KernelStored { Digest kernel; Status status; };
struct ProgramStored { Digest key; Status status; };
struct RecordsStored { WorkerId worker; std::vector<ResultAck> acks; };  // durable: may be forgotten
struct Tick {};
using Event = std::variant<RequestReceived, RequestCancelled, ClientGone, ProgramLookedUp,
                           PlanFinished, ReportReceived, WorkerGone, KernelStored, ProgramStored,
                           RecordsStored, Tick>;

// ---- What to do ----
struct LookUpProgram { Digest key; };
struct AskForGraph { ClientId client; uint64_t request = 0; };
struct StartPlan { Digest key; Digest graph; Target target; Mode mode; std::string graph_text; };
struct Answer { ClientId client; CompileReply reply; };
struct SendProgress { ClientId client; Progress progress; };
struct SendOrders { WorkerId worker; WorkerOrders orders; };
struct StoreRecords { WorkerId worker; std::vector<TuningRecord> records; std::vector<ResultAck> acks; };
struct StoreKernel { ProgramKernel kernel; Target tuned_on; std::string binary; };
struct StoreProgram { Program program; };
using Action = std::variant<LookUpProgram, AskForGraph, StartPlan, Answer, SendProgress, SendOrders,
                            StoreRecords, StoreKernel, StoreProgram>;

class Core {
 public:
  explicit Core(CoreOptions options);
  ~Core();
  // `now_ms` never goes back (the shell's monotonic clock).
  std::vector<Action> step(int64_t now_ms, const Event& event);
  Stats stats(int64_t now_ms) const;   // entries, bytes, uptime are the shell's to fill in

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kiln
