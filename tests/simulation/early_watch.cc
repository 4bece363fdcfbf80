#include "tests/simulation/early_watch.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "tests/simulation/truth.h"

namespace kiln::simulation {

void EarlyWatch::incarnation_begins() {
  verified_.clear();
  refuted_.clear();
  handed_out_.clear();
  owed_.clear();
  stored_.clear();
  shared_.clear();
}

EarlyWatch::Complaint EarlyWatch::step_ends() {
  for (const Choice& choice : std::exchange(stored_, {}))
    if (!verified_.contains(choice))
      return fmt::format("{} is stored, and nobody verified it", choice.second);
  if (owed_.empty()) return std::nullopt;
  return "a kernel that somebody was answered with is wrong, and it is not withdrawn";
}

EarlyWatch::Complaint EarlyWatch::leased(const WorkerReport& worker, const Job& job) const {
  const bool is_build = job.kind == Job::Kind::kBuild;
  for (const CandidateJob& candidate : job.candidates) {
    const bool is_given = !candidate.binary.empty() && job.kind != Job::Kind::kFinal;
    if ((is_build || is_given) && !worker.builds)
      return "building and verifying are leased apart to a worker that does both at once";
    if (is_given && candidate.binary != Truth::binary(job.kernel_key, candidate.schedule))
      return "another binary is to be tried than was built";
  }
  return std::nullopt;
}

void EarlyWatch::recorded(const TuningRecord& record, Job::Kind kind) {
  const Choice choice{record.kernel_key, record.schedule.to_string()};
  if (record.verdict == Verdict::kOk && kind == Job::Kind::kCompile) verified_.insert(choice);
  if (record.verdict == Verdict::kOk || !is_terminal(record.verdict)) return;
  refuted_.insert(choice);
  if (handed_out_.contains(choice)) owed_.insert(record.kernel_key);
}

EarlyWatch::Complaint EarlyWatch::answered(const CompileRequest& request, const Answer& answer) {
  const auto program = program_from_json(answer.reply.program_json);
  if (!program) return "an answer cannot be read";
  for (const ProgramKernel& kernel : program->kernels) {
    const Choice choice{kernel.key, kernel.schedule};
    if (const auto found = revoked_.find(kernel.key);
        found != revoked_.end() && program->serial <= found->second)
      return fmt::format("a program is answered that was revoked with a kernel of it: {}",
                         kernel.schedule);
    if (answer.is_early && refuted_.contains(choice))
      return fmt::format("{} is answered after it was found wrong", kernel.schedule);
    if (kernel.verified) continue;
    if (!answer.is_early) return "a kernel that is not verified is answered as if it were";
    if (!shared_.contains(kernel.blob)) return "a binary is answered that nobody can fetch";
    handed_out_.insert(choice);
  }
  const bool takes = request.early && !request.check_only && !request.detach;
  if (answer.is_early && !takes) return "a client that wants it verified is answered early";
  return std::nullopt;
}

// Without a final, somebody must have compared it. Records of an earlier incarnation do not say so.
void EarlyWatch::stored(const StoreKernel& store) {
  if (store.kernel.report.best_us == 0)
    stored_.emplace_back(store.kernel.key, store.kernel.schedule);
}

void EarlyWatch::withdrawn(const WithdrawKernel& action) {
  owed_.erase(action.kernel);
  std::erase_if(handed_out_, [&](const Choice& choice) { return choice.first == action.kernel; });
}

void EarlyWatch::revoked(const Digest& kernel, int64_t through) {
  revoked_[kernel] = std::max(revoked_[kernel], through);
}

}  // namespace kiln::simulation
