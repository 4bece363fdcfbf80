// Agent: the worker's side of the conversation with the coordinator. Reports what the worker has
// and does at least every second and whenever a result is there, passes orders on, and connects
// again, with growing pauses and jitter, when the coordinator is away; work goes on meanwhile.
//
//   connecting ──> reporting ──connection lost──> connecting
//        │             ├─ finish, or orders.drain ──> finishing: no new leases; those it has are
//        │             │                              done and handed over, within a bound
//        └──── stop ───┴─────────────────┴──> draining: leases given back, results handed over
//                                                              └──> done
//
// run() belongs to one thread; the other functions may be called from any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>

#include "schema/zmq/transport.h"
#include "worker/agent/held_leases.h"
#include "worker/agent/worker_status.h"

namespace kiln {

// Removes from `job` the candidates whose binary another worker compiled and `trusted` has not
// signed for this kernel and schedule (compiler_core/base/signature.h). Each becomes a result that
// says so, with the verdict device_lost: this worker cannot have the binary, which is no fault of
// the candidate and killed no runner. `signer`: the coordinator's, without bytes.
std::vector<CandidateResult> take_out_unsigned(Job& job, const Signature& signer,
                                               std::string_view trusted);

class Agent {
 public:
  struct Options {
    std::string coordinator;     // "tcp://127.0.0.1:7557", or several (Connection::open())
    Path key_file;               // schema/keys/key_file.h, read for each connection; empty: none
    WorkerReport self;           // name, target, toolkit, slots
    TemplateVersions templates;  // of this build: what the coordinator may ask for
    int report_period_ms = 1000;
    int connect_timeout_ms = 2000;
    int drain_timeout_ms = 2000;
    int finish_timeout_ms = 20'000;  // for the leases it has, once it shall take no more
    uint64_t jitter_seed = 0;
  };
  // Carries out the agent's orders; called from run()'s thread without locks held.
  struct Work {
    std::function<void(std::vector<Job>)> start;
    std::function<void(uint64_t lease)> drop;
    std::function<void()> stop;           // forget everything
    std::function<int64_t()> compiled{};  // so far (WorkerReport.compiled); may be empty
  };

  explicit Agent(Options options) : options_(std::move(options)), leases_(options_.self) {}

  // Until stop(), or finish() and nothing is left to do. kInvalidArgument when the coordinator
  // speaks another version of the protocol, or the endpoint is not one: trying again would not
  // help.
  Status run(const Work& work);
  void stop();
  // Takes nothing new, finishes what it has within finish_timeout_ms, hands it over, ends.
  void finish();

  void health(double calibration_us, int device_errors);  // for the reports from now on
  void waits(std::string what);  // for the reports from now on; empty: for nothing
  void stepped(uint64_t lease);
  void finished(CandidateResult result);

  WorkerStatus status() const;

 private:
  Result<std::unique_ptr<Connection>> connect();
  Status converse(Connection& connection, const Work& work);
  Status exchange(Connection& connection, const Work& work, int timeout_ms);
  void drain(Connection* connection, const Work& work);
  void attach(Connection* connection);
  void start(std::vector<Job> jobs, const Work& work);
  bool pause(int64_t ms);  // false when stop() was called meanwhile
  bool stopping() const;
  bool finished() const;
  void begin_to_finish();  // REQUIRES: mu_ is held
  void lost(const std::string& trouble);

  const Options options_;
  std::string token_;           // run()'s; of the last session
  std::string led_;             // run()'s; the coordinator of the last session
  Signature signed_by_;         // run()'s: the coordinator's, without bytes
  std::string trusted_signer_;  // run()'s: the key file's, else the coordinator's
  mutable std::mutex mu_;
  std::condition_variable stopped_;
  bool stopping_ = false;                                              // guarded by mu_
  std::optional<std::chrono::steady_clock::time_point> finish_until_;  // guarded by mu_
  bool news_ = false;                 // guarded by mu_; a result not reported yet
  int unanswered_ = 0;                // reports on this connection; run()'s thread
  HeldLeases leases_;                 // guarded by mu_
  Connection* connection_ = nullptr;  // guarded by mu_; to wake run()
  // Guarded by mu_; what status() tells beside the leases.
  CandidateTally tally_;
  std::string trouble_;
  int64_t connections_ = 0;
  std::chrono::steady_clock::time_point turned_{};
};

}  // namespace kiln
