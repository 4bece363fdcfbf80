#include "worker/build/candidate_lowering.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>

namespace kiln {
namespace {

constexpr int64_t kQuietMs = 10'000;

RunnerProcess::Options in_the_role(const RunnerProcess::Options& runner) {
  RunnerProcess::Options options{runner.executable, 0, {}, {"--role", "lower"}};
  options.sandbox = runner.sandbox;
  options.kind = SandboxKind::kCompiler;  // a worker's own code, with the bounds of a compiler
  return options;
}

Result<Buildable> buildable_of(runner::Lowered&& lowered) {
  TRY(Recipe recipe, recipe_from_json(lowered.recipe_json));
  if (lowered.is_source) return Source{std::move(lowered.bytes), std::move(recipe)};
  const Digest digest = Digest::of(lowered.bytes);
  return Artifact{std::move(recipe), std::move(lowered.bytes), digest};
}

}  // namespace

CandidateLowering::CandidateLowering(const RunnerProcess::Options& runner)
    : process_(in_the_role(runner)) {}

Result<Buildable> CandidateLowering::lower(const Job& job, const Schedule& schedule) {
  const std::lock_guard lock(mu_);
  const Digest workload = Digest::of(job.workload_text);
  for (;;) {
    const auto cost = in_a_row_.find(workload);
    if (cost != in_a_row_.end() && cost->second >= kMostProcesses)
      return fail(Code::kUnsupported,
                  fmt::format("this kernel cost {} processes that wrote it, of memory or time, and "
                              "is not tried again: compile its parts as programs of their own",
                              cost->second));
    if (const Status ready = process_.make_ready(); !ready)
      return fail(Code::kUnavailable, ready.error().message);
    auto reply = process_.call(
        runner::LowerCandidate{job.workload_text, job.family, schedule, job.target}, kQuietMs);
    if (reply) {
      auto* lowered = std::get_if<runner::Lowered>(&*reply);
      auto* failed = std::get_if<runner::Failed>(&*reply);
      if (lowered != nullptr || failed != nullptr) in_a_row_.erase(workload);
      if (lowered != nullptr) return buildable_of(std::move(*lowered));
      if (failed != nullptr) return fail(std::move(failed->error));
      process_.end();
      return fail(Code::kUnavailable, "the lowering process answered another question");
    }
    if (process_.is_closed()) return fail(Code::kUnavailable, "the worker is stopping");
    spdlog::warn("writing a kernel ({}, {}): {}", job.kernel_key.short_hex(), schedule.to_string(),
                 reply.error().message);
    if (in_a_row_.size() >= kMostRemembered) in_a_row_.clear();
    ++in_a_row_[workload];
  }
}

}  // namespace kiln
