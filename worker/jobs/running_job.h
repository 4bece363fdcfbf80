// RunningJob: one job with its candidates on their way from schedules to results.
//
//   start_compiling ──> compiling ──> ready ──measure──> finished
//                           ├── does not lower or compile ──> finished
//                           └── is to be built, and no more ──> finished
//
// Every candidate is finished once, unless the job is dropped: then no more are. Spills (of GPU
// kernels) are looked at before anything is run: in a screening, a candidate whose registers or
// arrays live in local memory is tried only when none that does without came out right. One thread.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "worker/build/candidate_lowering.h"
#include "worker/build/compile_pool.h"
#include "worker/jobs/job_trace.h"
#include "worker/jobs/known_evaluations.h"

namespace kiln {

class RunningJob {
 public:
  struct Callbacks {
    std::function<void(uint64_t lease)> stepped;  // a compile ended, or an evaluation gets on
    std::function<void(CandidateResult result)> finished;
    std::function<bool(uint64_t lease)> is_dropped;
    SpanSink trace{};  // may be empty
  };
  // The lowering, the pool and the callbacks outlive it.
  RunningJob(Job job, CandidateLowering& lowering, CompilePool& compilers,
             const Callbacks& callbacks);

  // Where the job's time went, in milliseconds that do not overlap.
  struct StageTimes {
    double compile = 0;  // waiting for compilers with nothing to measure
    double open = 0;     // inputs and reference
    double verify = 0;
    double time = 0;
  };

  const Job& job() const { return job_; }
  bool is_compiled_already() const;  // nothing is left to compile for it
  const StageTimes& stage_times() const { return stage_times_; }
  // The least time of this job, or the incumbent's. Libraries' times do not count, since their winner
  // needs the best of the others beside it.
  double best_us() const { return best_us_; }

  void start_compiling();
  // Waits until every compile is over, or the job is dropped.
  void finish_compiling();
  // Takes over what is compiled, without waiting. Candidates that did not compile are finished.
  enum class Ready : uint8_t { kNothing, kSome, kAll, kFinished };
  Ready look();
  // Says that the device stood idle for this job's compilers.
  void add_wait(double ms) { stage_times_.compile += ms; }
  // Tries what is ready while the rest still compiles, until all are finished or it was dropped.
  // False: it waits for compilers, and `gives_way` says that another job need not; to be called
  // again.
  bool measure(RunnerProcess& runner, KnownEvaluations& known,
               const std::function<bool()>& gives_way);
  // Whether a binary that it brings was built elsewhere, as far as `known` says. Finalists come back
  // to the worker that built them.
  bool runs_others_code(const KnownEvaluations& known) const;
  // Whether its device must be its alone: something is timed.
  bool is_timed() const {
    return job_.kind == Job::Kind::kScreen || job_.kind == Job::Kind::kFinal;
  }

 private:
  struct Candidate {
    std::future<Compiled> compiling;  // not valid: compiled is there
    std::optional<Compiled> compiled;
    bool finished = false;
  };
  // Whether the job brings the binary of a candidate: then it is not compiled here.
  bool is_given(size_t candidate) const { return !job_.candidates[candidate].binary.empty(); }
  bool is_dropped() const { return callbacks_.is_dropped(job_.lease); }
  bool collect(std::chrono::milliseconds patience);
  bool all_finished() const;
  Ready await_candidate(const std::function<bool()>& gives_way);
  void account(const Evaluation& evaluation);
  std::optional<size_t> next(bool spilling) const;
  bool spills(const Candidate& candidate) const;
  bool screen(RunnerProcess& runner, KnownEvaluations& known,
              const std::function<bool()>& gives_way);
  void evaluate(size_t candidate, RunnerProcess& runner, KnownEvaluations& known);
  void time_finalists(RunnerProcess& runner);
  void finish(size_t candidate, Evaluation evaluation);

  const Job job_;
  CandidateLowering& lowering_;
  CompilePool& compilers_;
  const Callbacks& callbacks_;
  std::vector<Candidate> candidates_;  // as job_.candidates
  JobTrace trace_;
  StageTimes stage_times_;
  double best_us_ = 0;
  bool right_without_spills_ = false;  // some candidate was
};

}  // namespace kiln
