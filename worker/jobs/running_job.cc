#include "worker/jobs/running_job.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <climits>

namespace kiln {
namespace {

using namespace std::chrono_literals;

// Turns a compiler's failure into a verdict on the candidate. Only a refused source is the
// candidate's fault; a full disk or a killed compiler is this worker's, and never counts as a
// runner that died of it.
Evaluation failed_compile(const Error& error) {
  Evaluation evaluation;
  evaluation.log = error.message;
  switch (error.code) {
    case Code::kDeadlineExceeded:
      evaluation.verdict = Verdict::kTimedOut;
      break;
    case Code::kUnavailable:
      evaluation.verdict = Verdict::kDeviceLost;
      break;
    default:
      evaluation.verdict = Verdict::kCompileFailed;
  }
  return evaluation;
}

Evaluation pruned(const KernelResources& resources) {
  Evaluation evaluation;
  evaluation.verdict = Verdict::kCompileFailed;
  evaluation.log = resources.spill_bytes > 0
                       ? fmt::format("spills {} bytes of registers", resources.spill_bytes)
                       : fmt::format("keeps {} bytes in local memory", resources.stack_bytes);
  evaluation.log +=
      fmt::format(" ({} registers); not measured, since others do without", resources.registers);
  return evaluation;
}

Compiled compiled_already(const CandidateJob& candidate) {
  auto recipe = recipe_from_json(candidate.recipe_json);
  if (!recipe) return {fail(recipe.error()), false, 0};
  KernelResources resources;
  resources.stack_bytes = static_cast<int>(std::clamp<int64_t>(candidate.local_bytes, 0, INT_MAX));
  return {Artifact{*std::move(recipe), candidate.binary, Digest::of(candidate.binary)}, false, 0,
          resources};
}

bool is_same(const Artifact& a, const Artifact& b) {
  return a.digest == b.digest && a.recipe == b.recipe;
}

// A finished binary, or why there is nothing to compile.
Compiled not_compiled(Result<Buildable> buildable) {
  Result<Artifact> artifact = fail(Code::kInternal, "");
  if (buildable)
    artifact = std::get<Artifact>(*std::move(buildable));
  else
    artifact = fail(buildable.error());
  return {std::move(artifact), false, 0};
}

}  // namespace

RunningJob::RunningJob(Job job, CandidateLowering& lowering, CompilePool& compilers,
                       const Callbacks& callbacks)
    : job_(std::move(job)),
      lowering_(lowering),
      compilers_(compilers),
      callbacks_(callbacks),
      candidates_(job_.candidates.size()),
      trace_(job_, callbacks.trace),
      best_us_(job_.incumbent_us) {}

bool RunningJob::is_compiled_already() const {
  return job_.kind == Job::Kind::kFinal ||
         std::ranges::none_of(job_.candidates, &std::string::empty, &CandidateJob::binary);
}

void RunningJob::start_compiling() {
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (job_.kind == Job::Kind::kFinal || is_given(i)) {
      candidates_[i].compiled = compiled_already(job_.candidates[i]);
      continue;
    }
    auto buildable = lowering_.lower(job_, job_.candidates[i].schedule);
    if (Source* source = buildable ? std::get_if<Source>(&*buildable) : nullptr)
      candidates_[i].compiling = compilers_.compile(std::move(*source), job_.target, job_.lease);
    else
      candidates_[i].compiled = not_compiled(std::move(buildable));
  }
}

// Takes what the compilers have done, waiting up to `patience` for the first that has not. Finishes
// what failed. False when nothing compiles any more.
bool RunningJob::collect(std::chrono::milliseconds patience) {
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
      trace_.compiled(job_.candidates[i].index, *candidate.compiled);
      callbacks_.stepped(job_.lease);
    }
    if (candidate.finished) continue;
    auto& artifact = candidate.compiled->artifact;
    if (artifact && artifact->binary.size() > kMaxBlobBytes)
      artifact = fail(Code::kUnsupported, "the object is larger than what is stored or sent");
    if (!artifact)
      finish(i, failed_compile(artifact.error()));
    else if (job_.kind == Job::Kind::kBuild)
      finish(i, {});
  }
  return compiling;
}

void RunningJob::finish_compiling() {
  while (!is_dropped() && collect(50ms)) {
  }
}

bool RunningJob::spills(const Candidate& candidate) const {
  const KernelResources& resources = candidate.compiled->resources;
  return job_.kind == Job::Kind::kScreen &&
         (resources.spill_bytes > 0 || resources.stack_bytes > 0);
}

// The first candidate that is ready and not finished, in the order of the search space.
std::optional<size_t> RunningJob::next(bool spilling) const {
  for (size_t i = 0; i < candidates_.size(); ++i)
    if (candidates_[i].compiled && !candidates_[i].finished && spills(candidates_[i]) == spilling)
      return i;
  return std::nullopt;
}

bool RunningJob::all_finished() const {
  return std::ranges::all_of(candidates_, &Candidate::finished);
}

RunningJob::Ready RunningJob::look() {
  const bool compiling = collect(0ms);
  if (all_finished()) return Ready::kFinished;
  if (!compiling) return Ready::kAll;
  return next(false) ? Ready::kSome : Ready::kNothing;
}

// Waits until there is a candidate to try, everything is finished, or another job goes first.
RunningJob::Ready RunningJob::await_candidate(const std::function<bool()>& gives_way) {
  const auto start = std::chrono::steady_clock::now();
  Ready ready = look();
  while (ready == Ready::kNothing && !is_dropped() && !gives_way()) {
    collect(1ms);
    ready = look();
  }
  const std::chrono::duration<double, std::milli> waited = std::chrono::steady_clock::now() - start;
  add_wait(waited.count());
  return is_dropped() ? Ready::kFinished : ready;
}

bool RunningJob::measure(RunnerProcess& runner, KnownEvaluations& known,
                         const std::function<bool()>& gives_way) {
  if (job_.kind != Job::Kind::kFinal) return screen(runner, known, gives_way);
  finish_compiling();
  if (!is_dropped()) time_finalists(runner);
  return true;
}

bool RunningJob::runs_others_code(const KnownEvaluations& known) const {
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const std::optional<Compiled>& given = candidates_[i].compiled;
    if (!is_given(i) || !given || !given->artifact) continue;
    const auto* own = known.find(job_.kernel_key, *given->artifact);
    if (own == nullptr || !own->built_here) return true;
  }
  return false;
}

bool RunningJob::screen(RunnerProcess& runner, KnownEvaluations& known,
                        const std::function<bool()>& gives_way) {
  for (;;) {
    const Ready now = await_candidate(gives_way);
    if (now == Ready::kFinished) return true;
    if (now == Ready::kNothing) return false;
    const auto ready = next(false);
    const size_t candidate = ready ? *ready : *next(true);
    if (!ready && right_without_spills_)
      finish(candidate, pruned(candidates_[candidate].compiled->resources));
    else
      evaluate(candidate, runner, known);
  }
}

void RunningJob::account(const Evaluation& evaluation) {
  stage_times_.open += evaluation.open_ms;
  stage_times_.verify += evaluation.verify_ms;
  stage_times_.time += evaluation.measure_ms;
}

void RunningJob::evaluate(size_t candidate, RunnerProcess& runner, KnownEvaluations& known) {
  const Artifact& artifact = *candidates_[candidate].compiled->artifact;
  const bool screening = job_.kind == Job::Kind::kScreen;
  const int index = job_.candidates[candidate].index;
  Evaluation evaluation;
  if (const auto* twin = screening ? known.find(job_.kernel_key, artifact) : nullptr) {
    evaluation = twin->evaluation;
    evaluation.verify_ms = evaluation.measure_ms = 0;
    evaluation.log = fmt::format("the same binary as candidate {}, tried once{}{}", twin->candidate,
                                 evaluation.log.empty() ? "" : ": ", evaluation.log);
  } else {
    const auto start = std::chrono::steady_clock::now();
    evaluation = evaluate_candidate(runner, job_, artifact, best_us_);
    account(evaluation);
    trace_.evaluated(start, evaluation, 1);
    if (screening)
      known.remember(job_.kernel_key, artifact, {index, evaluation, !is_given(candidate)});
  }
  if (evaluation.verdict == Verdict::kOk && !spills(candidates_[candidate]))
    right_without_spills_ = true;
  const double median_us = evaluation.measurement.median_us();
  if (!evaluation.dropped && median_us > 0 && (best_us_ <= 0 || median_us < best_us_) &&
      !artifact.recipe.calls_library())
    best_us_ = median_us;
  finish(candidate, std::move(evaluation));
}

void RunningJob::time_finalists(RunnerProcess& runner) {
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
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Evaluation> evaluations = evaluate_finalists(runner, job_, artifacts);
  Evaluation together;
  for (const Evaluation& evaluation : evaluations) {
    account(evaluation);
    together.open_ms += evaluation.open_ms;
    together.verify_ms += evaluation.verify_ms;
    together.measure_ms += evaluation.measure_ms;
    if (evaluation.verdict != Verdict::kOk) together.verdict = evaluation.verdict;
  }
  trace_.evaluated(start, together, artifacts.size());
  for (const auto& [candidate, artifact] : members) {
    const double median_us = evaluations[artifact].measurement.median_us();
    if (median_us > 0 && (best_us_ <= 0 || median_us < best_us_)) best_us_ = median_us;
    finish(candidate, evaluations[artifact]);
  }
}

void RunningJob::finish(size_t at, Evaluation evaluation) {
  Candidate& candidate = candidates_[at];
  candidate.finished = true;
  if (is_dropped()) return;  // an evaluation that we ended ourselves says nothing
  const Compiled& compiled = *candidate.compiled;
  CandidateResult result;
  result.lease = job_.lease;
  result.epoch = job_.epoch;
  result.kernel_key = job_.kernel_key;
  result.index = job_.candidates[at].index;
  result.verdict = evaluation.verdict;
  result.compiled = compiled.ran;
  result.log = evaluation.log.substr(0, runner::kMaxLogBytes);
  result.compile_ms = compiled.ms;
  if (job_.kind == Job::Kind::kBuild)
    result.local_bytes = std::max(compiled.resources.spill_bytes, compiled.resources.stack_bytes);
  result.verify_ms = evaluation.verify_ms;
  result.measure_ms = evaluation.measure_ms;
  spdlog::debug(
      "lease {} candidate {} [{}]: {}, {:.2f} us (compile {:.0f}, verify {:.1f}, time "
      "{:.1f} ms) {}",
      job_.lease, result.index, job_.candidates[at].schedule.to_string(),
      to_string(evaluation.verdict), evaluation.measurement.median_us(), result.compile_ms,
      result.verify_ms, result.measure_ms, evaluation.log);
  const bool in_the_race = evaluation.verdict == Verdict::kOk && !evaluation.dropped;
  if (in_the_race && job_.kind != Job::Kind::kFinal && !is_given(at)) {
    result.recipe_json = recipe_to_json(compiled.artifact->recipe);
    result.binary = compiled.artifact->binary;
  }
  result.measurement = std::move(evaluation.measurement);
  trace_.finished(result);
  callbacks_.finished(std::move(result));
}

}  // namespace kiln
