#include "worker/jobs/leased_job.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>

#include "compiler_core/ir/text.h"

namespace kiln {
namespace {

using namespace std::chrono_literals;

// What a compiler's failure says of the candidate. Only a refused source is the candidate's fault;
// a full disk or a killed compiler is this worker's, and never counts as a runner that died of it.
Trial failed_compile(const Error& error) {
  Trial trial;
  trial.log = error.message;
  switch (error.code) {
    case Code::kDeadlineExceeded:
      trial.verdict = Verdict::kTimedOut;
      break;
    case Code::kUnavailable:
      trial.verdict = Verdict::kDeviceLost;
      break;
    default:
      trial.verdict = Verdict::kCompileFailed;
  }
  return trial;
}

Trial pruned(const KernelResources& resources) {
  Trial trial;
  trial.verdict = Verdict::kCompileFailed;
  trial.log = resources.spill_bytes > 0
                  ? fmt::format("spills {} bytes of registers", resources.spill_bytes)
                  : fmt::format("keeps {} bytes in local memory", resources.stack_bytes);
  trial.log +=
      fmt::format(" ({} registers); not measured, since others do without", resources.registers);
  return trial;
}

Compiled compiled_already(const CandidateJob& candidate) {
  auto recipe = recipe_from_json(candidate.recipe_json);
  if (!recipe) return {fail(recipe.error()), false, 0};
  return {Artifact{*std::move(recipe), candidate.binary, Digest::of(candidate.binary)}, false, 0};
}

bool is_same(const Artifact& a, const Artifact& b) {
  return a.digest == b.digest && a.recipe == b.recipe;
}

}  // namespace

LeasedJob::LeasedJob(Job job, CompilePool& compilers, const Callbacks& callbacks)
    : job_(std::move(job)),
      compilers_(compilers),
      callbacks_(callbacks),
      candidates_(job_.candidates.size()),
      best_us_(job_.incumbent_us) {}

void LeasedJob::start_compiling() {
  auto graph = parse_graph(job_.workload_text);
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (job_.kind == Job::Kind::kFinal) {
      candidates_[i].compiled = compiled_already(job_.candidates[i]);
      continue;
    }
    auto source =
        graph ? lower(Workload{*graph, job_.family, {}}, job_.candidates[i].schedule, job_.target)
              : fail(graph.error());
    if (source)
      candidates_[i].compiling = compilers_.compile(*std::move(source), job_.target, job_.lease);
    else
      candidates_[i].compiled = Compiled{fail(source.error()), false, 0};
  }
}

// Takes what the compilers have done, waiting up to `patience` for the first that has not. Finishes
// what failed. False when nothing compiles any more.
bool LeasedJob::collect(std::chrono::milliseconds patience) {
  bool compiling = false;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    Candidate& candidate = candidates_[i];
    if (candidate.compiling.valid()) {
      if (candidate.compiling.wait_for(patience) != std::future_status::ready) {
        compiling = true;
        patience = 0ms;
        continue;
      }
      candidate.compiled = candidate.compiling.get();
      callbacks_.stepped(job_.lease);
    }
    if (candidate.finished) continue;
    auto& artifact = candidate.compiled->artifact;
    if (artifact && artifact->binary.size() > kMaxBlobBytes)
      artifact = fail(Code::kUnsupported, "the object is larger than what is stored or sent");
    if (!artifact) finish(i, failed_compile(artifact.error()));
  }
  return compiling;
}

void LeasedJob::finish_compiling() {
  while (!is_dropped() && collect(50ms)) {
  }
}

bool LeasedJob::spills(const Candidate& candidate) const {
  const KernelResources& resources = candidate.compiled->resources;
  return job_.kind == Job::Kind::kScreen &&
         (resources.spill_bytes > 0 || resources.stack_bytes > 0);
}

// The first candidate that is ready and not finished, in the order of the search space.
std::optional<size_t> LeasedJob::next(bool spilling) const {
  for (size_t i = 0; i < candidates_.size(); ++i)
    if (candidates_[i].compiled && !candidates_[i].finished && spills(candidates_[i]) == spilling)
      return i;
  return std::nullopt;
}

bool LeasedJob::wait_for_work() {
  const auto start = std::chrono::steady_clock::now();
  const bool found = await_candidate();
  const std::chrono::duration<double, std::milli> waited = std::chrono::steady_clock::now() - start;
  stage_times_.compile += waited.count();
  return found;
}

bool LeasedJob::await_candidate() {
  while (!is_dropped()) {
    const bool compiling = collect(next(false) ? 0ms : 1ms);
    if (next(false)) return true;
    if (!compiling) return next(true).has_value();
  }
  return false;
}

void LeasedJob::measure(RunnerProcess& runner, KnownTrials& known) {
  if (job_.kind != Job::Kind::kFinal) return screen(runner, known);
  finish_compiling();
  if (!is_dropped()) time_finalists(runner);
}

void LeasedJob::screen(RunnerProcess& runner, KnownTrials& known) {
  while (wait_for_work()) {
    const auto ready = next(false);
    const size_t candidate = ready ? *ready : *next(true);
    if (!ready && right_without_spills_)
      finish(candidate, pruned(candidates_[candidate].compiled->resources));
    else
      try_one(candidate, runner, known);
  }
}

void LeasedJob::account(const Trial& trial) {
  stage_times_.open += trial.open_ms;
  stage_times_.verify += trial.verify_ms;
  stage_times_.time += trial.measure_ms;
}

void LeasedJob::try_one(size_t candidate, RunnerProcess& runner, KnownTrials& known) {
  const Artifact& artifact = *candidates_[candidate].compiled->artifact;
  const bool screening = job_.kind == Job::Kind::kScreen;
  const int index = job_.candidates[candidate].index;
  Trial trial;
  if (const auto* twin = screening ? known.find(job_.kernel_key, artifact) : nullptr) {
    trial = twin->trial;
    trial.verify_ms = trial.measure_ms = 0;
    trial.log = fmt::format("the same binary as candidate {}, tried once{}{}", twin->candidate,
                            trial.log.empty() ? "" : ": ", trial.log);
  } else {
    trial = try_candidate(runner, job_, artifact, best_us_);
    account(trial);
    if (screening) known.remember(job_.kernel_key, artifact, index, trial);
  }
  if (trial.verdict == Verdict::kOk && !spills(candidates_[candidate]))
    right_without_spills_ = true;
  const double median_us = trial.measurement.median_us();
  if (!trial.dropped && median_us > 0 && (best_us_ <= 0 || median_us < best_us_))
    best_us_ = median_us;
  finish(candidate, std::move(trial));
}

void LeasedJob::time_finalists(RunnerProcess& runner) {
  std::vector<Artifact> artifacts;                 // each once
  std::vector<std::pair<size_t, size_t>> members;  // candidate, its artifact
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (candidates_[i].finished) continue;
    const Artifact& artifact = *candidates_[i].compiled->artifact;
    const auto same = std::ranges::find_if(
        artifacts, [&](const Artifact& other) { return is_same(artifact, other); });
    members.emplace_back(i, static_cast<size_t>(same - artifacts.begin()));
    if (same == artifacts.end()) artifacts.push_back(artifact);
  }
  const std::vector<Trial> trials = try_finalists(runner, job_, artifacts);
  for (const Trial& trial : trials) account(trial);
  for (const auto& [candidate, artifact] : members) {
    const double median_us = trials[artifact].measurement.median_us();
    if (median_us > 0 && (best_us_ <= 0 || median_us < best_us_)) best_us_ = median_us;
    finish(candidate, trials[artifact]);
  }
}

void LeasedJob::finish(size_t at, Trial trial) {
  Candidate& candidate = candidates_[at];
  candidate.finished = true;
  if (is_dropped()) return;  // a trial that we ended ourselves says nothing
  const Compiled& compiled = *candidate.compiled;
  CandidateResult result;
  result.lease = job_.lease;
  result.epoch = job_.epoch;
  result.kernel_key = job_.kernel_key;
  result.index = job_.candidates[at].index;
  result.verdict = trial.verdict;
  result.compiled = compiled.ran;
  result.log = trial.log.substr(0, runner::kMaxLogBytes);
  result.compile_ms = compiled.ms;
  result.verify_ms = trial.verify_ms;
  result.measure_ms = trial.measure_ms;
  spdlog::debug(
      "lease {} candidate {} [{}]: {}, {:.2f} us (compile {:.0f}, verify {:.1f}, time "
      "{:.1f} ms) {}",
      job_.lease, result.index, job_.candidates[at].schedule.to_string(), to_string(trial.verdict),
      trial.measurement.median_us(), result.compile_ms, result.verify_ms, result.measure_ms,
      trial.log);
  const bool in_the_race = trial.verdict == Verdict::kOk && !trial.dropped;
  if (in_the_race && job_.kind != Job::Kind::kFinal) {
    result.recipe_json = recipe_to_json(compiled.artifact->recipe);
    result.binary = compiled.artifact->binary;
  }
  result.measurement = std::move(trial.measurement);
  callbacks_.finished(std::move(result));
}

}  // namespace kiln
