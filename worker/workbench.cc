#include "worker/workbench.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>

#include "compiler_core/ir/text.h"
#include "worker/device_lock.h"

namespace kiln {

// A job of the wave at work. Candidate i stands in job.candidates[i], compiled[i].
struct Workbench::Bench {
  Job job;
  std::vector<std::future<Compiled>> compiling;  // not valid where there is nothing to compile
  std::vector<std::optional<Compiled>> compiled;
  double best_us = 0;  // of this job, or the incumbent
};

namespace {

// What a compiler's failure says of the candidate. Only a refused source is the candidate's fault.
Trial failed_compile(const Error& error) {
  Trial trial;
  trial.log = error.message;
  switch (error.code) {
    case Code::kDeadlineExceeded:
      trial.verdict = Verdict::kTimedOut;
      break;
    case Code::kUnavailable:
      trial.verdict = Verdict::kRunnerDied;
      break;
    default:
      trial.verdict = Verdict::kCompileFailed;
  }
  return trial;
}

Compiled compiled_already(const CandidateJob& candidate) {
  auto recipe = recipe_from_json(candidate.recipe_json);
  if (!recipe) return {fail(recipe.error()), false, 0};
  return {Artifact{*std::move(recipe), candidate.binary, Digest::of(candidate.binary)}, false, 0};
}

}  // namespace

Workbench::Workbench(Options options, CompilePool& compilers, Callbacks callbacks)
    : options_(std::move(options)),
      compilers_(compilers),
      callbacks_(std::move(callbacks)),
      runner_({options_.runner, options_.threads, [this] { callbacks_.stepped(measuring_); }}),
      thread_([this] { work(); }) {}

void Workbench::submit(std::vector<Job> jobs) {
  const std::lock_guard lock(mu_);
  for (Job& job : jobs) queue_.push_back(std::move(job));
  changed_.notify_one();
}

void Workbench::drop(uint64_t lease) {
  const std::lock_guard lock(mu_);
  std::erase_if(queue_, [=](const Job& job) { return job.lease == lease; });
  dropped_.insert(lease);
}

void Workbench::stop() {
  {
    const std::lock_guard lock(mu_);
    stopping_ = true;
    queue_.clear();
  }
  changed_.notify_one();
  runner_.close();
  if (thread_.joinable()) thread_.join();
}

bool Workbench::is_dropped(uint64_t lease) const {
  const std::lock_guard lock(mu_);
  return stopping_ || dropped_.contains(lease);
}

bool Workbench::is_stopping() const {
  const std::lock_guard lock(mu_);
  return stopping_;
}

void Workbench::work() {
  for (;;) {
    std::vector<Job> jobs;
    {
      std::unique_lock lock(mu_);
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      std::ranges::move(queue_, std::back_inserter(jobs));
      queue_.clear();
      dropped_.clear();  // they were leases of earlier waves
    }
    run_wave(std::move(jobs));
  }
}

void Workbench::run_wave(std::vector<Job> jobs) {
  std::vector<Bench> wave(jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) wave[i].job = std::move(jobs[i]);
  {
    const auto lock = lock_for(FileLock::Mode::kShared, [this] { return is_stopping(); });
    for (Bench& bench : wave) compile(bench);
    for (Bench& bench : wave) collect(bench);
  }
  for (Bench& bench : wave) {
    const uint64_t lease = bench.job.lease;
    const auto lock = lock_for(FileLock::Mode::kExclusive, [=, this] { return is_dropped(lease); });
    if (is_dropped(lease)) continue;
    measuring_ = lease;
    bench.job.kind == Job::Kind::kFinal ? measure_finals(bench) : measure(bench);
    spdlog::info("lease {}: {} candidates of {} {}, best {:.2f} us", lease,
                 bench.job.candidates.size(), to_string(bench.job.family),
                 bench.job.kernel_key.short_hex(), bench.best_us);
  }
}

Result<FileLock> Workbench::lock_for(FileLock::Mode mode,
                                     const std::function<bool()>& give_up) const {
  auto lock = lock_device(options_.device_lock, mode, give_up);
  if (!lock && lock.error().code != Code::kUnavailable)
    spdlog::warn("working without the device's lock: {}", lock.error().message);
  return lock;
}

// Starts what has to be compiled; what cannot even be lowered is finished at once.
void Workbench::compile(Bench& bench) {
  const Job& job = bench.job;
  bench.best_us = job.incumbent_us;
  bench.compiling.resize(job.candidates.size());
  bench.compiled.resize(job.candidates.size());
  auto graph = parse_graph(job.workload_text);
  for (size_t i = 0; i < job.candidates.size(); ++i) {
    if (job.kind == Job::Kind::kFinal) {
      bench.compiled[i] = compiled_already(job.candidates[i]);
      continue;
    }
    auto source =
        graph ? lower(Workload{*graph, job.family, {}}, job.candidates[i].schedule, job.target)
              : fail(graph.error());
    if (source)
      bench.compiling[i] = compilers_.compile(*std::move(source), job.target);
    else
      bench.compiled[i] = Compiled{fail(source.error()), false, 0};
  }
}

// Waits for the compilers; finishes what failed.
void Workbench::collect(Bench& bench) {
  const uint64_t lease = bench.job.lease;
  for (size_t i = 0; i < bench.compiled.size(); ++i) {
    if (auto& compiling = bench.compiling[i]; compiling.valid()) {
      while (compiling.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready)
        if (is_dropped(lease)) return;
      bench.compiled[i] = compiling.get();
      callbacks_.stepped(lease);
    }
    auto& artifact = bench.compiled[i]->artifact;
    if (artifact && artifact->binary.size() > kMaxBlobBytes)
      artifact = fail(Code::kUnsupported, "the object is larger than what is stored or sent");
    if (!artifact) finish(bench, i, failed_compile(artifact.error()));
  }
}

void Workbench::measure(Bench& bench) {
  for (size_t i = 0; i < bench.compiled.size() && !is_dropped(bench.job.lease); ++i) {
    if (!bench.compiled[i]->artifact) continue;
    Trial trial = try_candidate(runner_, bench.job, *bench.compiled[i]->artifact, bench.best_us);
    const double median_us = trial.measurement.median_us();
    if (!trial.dropped && median_us > 0 && (bench.best_us <= 0 || median_us < bench.best_us))
      bench.best_us = median_us;
    finish(bench, i, std::move(trial));
  }
}

void Workbench::measure_finals(Bench& bench) {
  std::vector<size_t> members;
  std::vector<Artifact> artifacts;
  for (size_t i = 0; i < bench.compiled.size(); ++i) {
    if (!bench.compiled[i]->artifact) continue;
    members.push_back(i);
    artifacts.push_back(*std::move(bench.compiled[i]->artifact));
  }
  std::vector<Trial> trials = try_finalists(runner_, bench.job, artifacts);
  for (size_t i = 0; i < members.size(); ++i) finish(bench, members[i], std::move(trials[i]));
}

void Workbench::finish(const Bench& bench, size_t candidate, Trial trial) {
  const Job& job = bench.job;
  if (is_dropped(job.lease)) return;  // a trial that we ended ourselves says nothing
  const Compiled& compiled = *bench.compiled[candidate];
  CandidateResult result;
  result.lease = job.lease;
  result.epoch = job.epoch;
  result.kernel_key = job.kernel_key;
  result.index = job.candidates[candidate].index;
  result.verdict = trial.verdict;
  result.compiled = compiled.ran;
  result.log = trial.log.substr(0, runner::kMaxLogBytes);
  result.compile_ms = compiled.ms;
  result.verify_ms = trial.verify_ms;
  result.measure_ms = trial.measure_ms;
  if (trial.verdict != Verdict::kOk)
    spdlog::debug("lease {} candidate {} [{}]: {}: {}", job.lease, result.index,
                  job.candidates[candidate].schedule.to_string(), to_string(trial.verdict),
                  trial.log);
  const bool in_the_race = trial.verdict == Verdict::kOk && !trial.dropped;
  if (in_the_race && job.kind != Job::Kind::kFinal) {
    result.recipe_json = recipe_to_json(compiled.artifact->recipe);
    result.binary = compiled.artifact->binary;
  }
  result.measurement = std::move(trial.measurement);
  callbacks_.finished(std::move(result));
}

}  // namespace kiln
