// BuildJobs: the leases whose candidates are compiled and no more (Job::Kind::kBuild). They need
// neither the device nor its lock, so that a program is built while others are verified or timed.
//
//   submit ──> lowered, given to the compile pool ──> compiled ──> finished
//                └───────────── drop, stop ─────────────> forgotten, no results
//
// Thread-safe; its own thread does the work and calls back, without locks held.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "worker/jobs/running_job.h"

namespace kiln {

class BuildJobs {
 public:
  // The lowering, the pool and what the functions refer to outlive it.
  BuildJobs(CandidateLowering& lowering, CompilePool& compilers,
            std::function<void(uint64_t lease)> stepped,
            std::function<void(CandidateResult result)> finished, SpanSink trace = {});
  ~BuildJobs() { stop(); }

  void submit(Job job);  // REQUIRES: it is a kBuild
  void drop(uint64_t lease);
  bool busy() const;  // something is being built
  // Forgets all jobs; returns when no callback can come any more. The pool is stopped first, or the
  // thread may wait for it.
  void stop();

 private:
  void work();
  bool is_dropped(uint64_t lease) const;  // or everything is

  CandidateLowering& lowering_;
  CompilePool& compilers_;
  const RunningJob::Callbacks callbacks_;

  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<RunningJob>> queue_;  // guarded by mu_
  std::set<uint64_t> open_;  // guarded by mu_: leases not dropped or finished
  size_t running_ = 0;       // guarded by mu_: taken from queue_
  bool stopping_ = false;    // guarded by mu_
  std::thread thread_;
};

}  // namespace kiln
