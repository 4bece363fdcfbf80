// Workbench: does the work of leases: lowers and compiles their candidates, then verifies and times
// them in the runner, one after the other.
//
//   submit ──> queued ──wave: compile all (device lock shared)──> try each (exclusive) ──> finished
//                 └────────────────────── drop, stop ──────────────────────> forgotten, no results
//
// All queued jobs make one wave, so that the compile pool is busy; while it measures, nothing of
// this worker compiles. Thread-safe; its own thread does the work and calls back.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <set>
#include <thread>

#include "worker/compile_pool.h"
#include "worker/trial.h"

namespace kiln {

class Workbench {
 public:
  struct Options {
    Path runner;      // the executable
    int threads = 0;  // a launch uses; 0: one per core
    Path device_lock;
  };
  // Called from the workbench's thread, without locks held.
  struct Callbacks {
    std::function<void(uint64_t lease)> stepped;  // progress: a compile ended, a trial gets on
    std::function<void(CandidateResult result)> finished;
  };
  // `compilers` outlives it.
  Workbench(Options options, CompilePool& compilers, Callbacks callbacks);
  ~Workbench() { stop(); }

  void submit(std::vector<Job> jobs);
  void drop(uint64_t lease);
  void stop();  // forgets all jobs, ends the runner; returns when no callback can come any more

 private:
  struct Bench;  // one job of a wave, with its candidates on their way
  void work();
  void run_wave(std::vector<Job> jobs);
  Result<FileLock> lock_for(FileLock::Mode mode, const std::function<bool()>& give_up) const;
  void compile(Bench& bench);
  void collect(Bench& bench);
  void measure(Bench& bench);
  void measure_finals(Bench& bench);
  void finish(const Bench& bench, size_t candidate, Trial trial);
  bool is_dropped(uint64_t lease) const;  // or everything is
  bool is_stopping() const;

  const Options options_;
  CompilePool& compilers_;
  const Callbacks callbacks_;
  RunnerProcess runner_;  // of the worker thread; kill() from others

  uint64_t measuring_ = 0;  // of the worker thread: the lease in the runner

  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::deque<Job> queue_;       // guarded by mu_
  std::set<uint64_t> dropped_;  // guarded by mu_; leases of the wave at work
  bool stopping_ = false;       // guarded by mu_
  std::thread thread_;
};

}  // namespace kiln
