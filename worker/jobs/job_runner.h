// JobRunner: does the work of leases: lowers and compiles their candidates, then verifies and times
// them in the runner, one after the other.
//
// Where compiling disturbs a measurement (on the CPU), all queued jobs make one wave, so that the
// compile pool is busy, and while it measures, nothing of this worker compiles:
//
//   submit ──> queued ──wave: compile all (device lock shared)──> try each (exclusive) ──> finished
//                 └────────────────────── drop, stop ──────────────────────> forgotten, no results
//
// A job that times nothing (verifying what was built for `default` mode) holds the lock shared, so
// that it waits only for what is timed. Jobs that are only built go to BuildJobs. What a CPU is to
// verify or time waits a little for those: somebody waits for them.
//
// Where it does not (on a GPU), jobs compile from submit() on. The device takes the first job that
// is compiled as a whole, or while there is none the first of which something is; a job that waits
// for its compilers gives way to one that need not. Thread-safe; its own thread does the work and
// calls back.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <set>
#include <thread>

#include "worker/jobs/build_jobs.h"
#include "worker/jobs/running_job.h"

namespace kiln {

// Waits for the lock that keeps measurements on a device undisturbed on this host, asking `give_up`
// now and then. A measurement holds it exclusively; work that would disturb one (compiling, on the
// CPU target) holds it shared. The system releases it when its process dies. kUnavailable when
// `give_up` says so; other errors: the file cannot be used as a lock. When it takes longer than a
// second, `waits` (may be empty) hears for whom, now and then, and an empty text at the end.
Result<FileLock> lock_device(const Path& path, FileLock::Mode mode,
                             const std::function<bool()>& give_up,
                             const std::function<void(const std::string& what)>& waits = {});

class JobRunner {
 public:
  struct Options {
    RunnerProcess::Options runner;  // `progressed` is the JobRunner's own
    Path device_lock;
    bool compiling_disturbs = true;  // a measurement on this device
  };
  // Called from the JobRunner's thread, without locks held; in submit() also from the caller's.
  struct Callbacks {
    std::function<void(uint64_t lease)> stepped;  // a compile ended, or an evaluation gets on
    std::function<void(CandidateResult result)> finished;
    // After each lease, and now and then while there is none: the latest median time of the
    // calibration kernel (0: not measured), and device faults since the start. May be empty.
    std::function<void(double calibration_us, int device_errors)> health{};
    // Hears what the job waits for, once that has taken a second; empty text: nothing any more. May
    // be empty.
    std::function<void(const std::string& what)> waits{};
    // Takes the spans of jobs whose trace is recorded. From any of its threads. May be empty.
    SpanSink trace{};
  };
  // `compilers` outlives it.
  JobRunner(Options options, CompilePool& compilers, const Callbacks& callbacks);
  ~JobRunner() { stop(); }

  void submit(std::vector<Job> jobs);
  void drop(uint64_t lease);
  // Forgets all jobs, ends the runner and the pool; returns when no callback can come any more.
  void stop();

 private:
  using Jobs = std::vector<std::unique_ptr<RunningJob>>;
  void work();
  void run_wave(const Jobs& jobs);
  void run_as_compiled();
  Jobs::iterator most_ready();
  bool measure(RunningJob& job, const std::function<bool()>& gives_way);
  bool wait_for_jobs();  // false: it stops
  void take_submitted();
  void let_builds_go_first(const RunningJob& job);
  void look_at_device();
  void measure_calibration();
  void tell_health();
  Result<FileLock> lock_for(FileLock::Mode mode, const std::function<bool()>& give_up) const;
  bool is_dropped(uint64_t lease) const;  // or everything is
  bool is_stopping() const;

  const Options options_;
  CompilePool& compilers_;
  const RunningJob::Callbacks callbacks_;
  RunnerProcess runner_;  // of the worker thread; kill() from others
  CandidateLowering lowering_;
  KnownEvaluations known_;  // of the worker thread
  BuildJobs builds_;

  const std::function<void(double calibration_us, int device_errors)> health_;
  const std::function<void(const std::string& what)> waits_;
  Jobs jobs_;                           // of the worker thread: taken from queue_
  std::deque<double> calibrations_us_;  // of the worker thread: the latest few

  mutable std::mutex mu_;
  std::condition_variable changed_;
  Jobs queue_;                  // guarded by mu_
  std::set<uint64_t> dropped_;  // guarded by mu_; of jobs_
  bool stopping_ = false;       // guarded by mu_
  std::thread thread_;
};

}  // namespace kiln
