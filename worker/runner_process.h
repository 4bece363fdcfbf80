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

#include "compiler_core/base/file.h"
#include "worker/runner_protocol.h"

namespace kiln {

class RunnerProcess {
 public:
  struct Options {
    Path executable;
    int threads = 0;                   // a launch uses; 0: one per core
    std::function<void()> progressed;  // called in call(), now and then while it gets on
  };
  explicit RunnerProcess(Options options) : options_(std::move(options)) {}
  ~RunnerProcess();
  RunnerProcess(const RunnerProcess&) = delete;

  // The reply; never Progress. kDeadlineExceeded: silent for `quiet_ms`, and killed; kUnavailable:
  // it died, the message says of what; kNotFound: it cannot be started.
  Result<runner::Reply> call(const runner::Request& request, int64_t quiet_ms);

  // From any thread: ends the runner; a call in progress fails as kUnavailable.
  void kill();
  void close();       // the same, and no other is started
  pid_t pid() const;  // 0: none

 private:
  Status start();
  bool is_running() const;
  std::string reap();  // kills what is left and says how it ended
  Result<runner::Reply> exchange(const runner::Request& request, int64_t quiet_ms);

  Options options_;
  int socket_ = -1;
  mutable std::mutex mu_;
  pid_t pid_ = 0;        // guarded by mu_, so that kill() never meets a reused id
  bool closed_ = false;  // guarded by mu_
};

}  // namespace kiln
