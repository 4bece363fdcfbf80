// RunnerProcess: the worker's side of kiln-runner: starts it when it is needed, talks to it, kills
// it when it is silent for too long, and starts another for the next request.
//
//   none ──call──> running ──silent, crashed, or talks nonsense──> none
//
// The child dies with the thread that started it (PR_SET_PDEATHSIG), so that thread must last as
// long as the object. One thread, except kill().
#pragma once

#include <sys/types.h>

#include <functional>
#include <mutex>
#include <optional>

#include "compiler_core/base/file.h"
#include "worker/runner/protocol.h"
#include "worker/sandbox/sandbox.h"

namespace kiln {

class RunnerProcess {
 public:
  struct Options {
    Path executable;
    int threads = 0;                       // a launch uses; 0: one per core
    std::function<void()> progressed;      // called in call(), now and then while it gets on
    std::vector<std::string> arguments{};  // more of them: "--role", "compile"
    // The first request to every runner that is started; an answer of Failed ends it.
    std::function<Result<runner::Request>()> prepare{};
    std::shared_ptr<const Sandbox> sandbox{};  // null: none
    SandboxKind kind = SandboxKind::kRunner;
    int niceness = 0;  // of its process, as in nice(2)
  };
  explicit RunnerProcess(Options options) : options_(std::move(options)) {}
  ~RunnerProcess();
  RunnerProcess(const RunnerProcess&) = delete;

  const Options& options() const { return options_; }
  // Starts and prepares a runner unless one runs; call() does so too. Errors as there.
  Status make_ready();
  // The reply; never Progress or Leaving. kDeadlineExceeded: silent for `quiet_ms`, or not done after
  // `most_ms` (0: no bound) whatever it says of itself, and killed;
  // kUnavailable: it died, the message says of what, or could not be prepared; kNotFound: it cannot
  // be started.
  Result<runner::Reply> call(const runner::Request& request, int64_t quiet_ms, int64_t most_ms = 0);

  void end();  // the next call starts another
  // From any thread: asks for the end of a CompileSource in progress, which still has its reply.
  void interrupt();
  // From any thread: ends the runner; a call in progress fails as kUnavailable.
  void kill();
  void close();  // the same, and no other is started
  bool is_closed() const;
  pid_t pid() const;  // 0: none
  // Runners whose device could not be prepared: it is the device that fails then, and not what was
  // to run on it. Of the calling thread.
  int device_failures() const { return device_failures_; }

 private:
  Status start();
  Status prepare();
  bool is_running() const;
  std::string reap();  // kills what is left and says how it ended
  Result<runner::Reply> exchange(const runner::Request& request, int64_t quiet_ms, int64_t most_ms);

  Error ended(const Error& why, int64_t quiet_ms, int64_t most_ms);

  Options options_;
  std::mutex sending_;  // one frame at a time
  int device_failures_ = 0;
  bool leaving_ = false;  // it said so: not to be used for another request
  bool is_nice_ = false;  // the process has its niceness
  int socket_ = -1;       // changed by the calling thread, under sending_
  mutable std::mutex mu_;
  pid_t pid_ = 0;        // guarded by mu_, so that kill() never meets a reused id
  bool closed_ = false;  // guarded by mu_
};

}  // namespace kiln
