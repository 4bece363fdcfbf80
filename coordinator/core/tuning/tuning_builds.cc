// TuningTask's candidates that one worker builds and another tries: a builder's word is its binary, and
// nothing else of what it says is believed.
//
//   to be built --built--> to be tried --loaded--> verified, timed, like any other
//        ^                      `--no device loads it: built once more, by another if there is one
//        `---------------------------'           (again: rejected; else the first builder is at fault)
//
// A kernel that keeps registers or arrays in a GPU's local memory is slow. It is tried when nothing
// else came out right, as in one worker's job (worker/jobs/running_job.h), and so waits until all
// others are settled.
#include <utility>

#include "coordinator/core/mutation.h"
#include "coordinator/core/tuning/tuning_task.h"

namespace kiln {

TuningTask::Batch TuningTask::take_build(const WorkerId& worker, bool others,
                                         const std::vector<std::string>& lacks) {
  return {Job::Kind::kBuild, candidates_.take(Line::kBuild, worker, 1, others, lacks)};
}

void TuningTask::keep_built(CandidateResult result, Recipe recipe, const Where& where) {
  const int candidate = result.index;
  const Digest made = made_of(result.recipe_json, result.binary);
  const auto before = not_loaded_.find(candidate);
  if (before != not_loaded_.end() && before->second.made == made)
    return reject(candidate, Verdict::kCompileFailed,
                  "two builds of it are the same, which does not load");
  candidates_.keep_binary(candidate, {std::move(recipe), std::move(result.binary), where.device,
                                      where.by, where.toolkit, made, where.standing,
                                      mutated(Mutation::kTrustBuilds), result.local_bytes});
  if (mode_ == Mode::kMaxAutotune && result.local_bytes > 0)
    spilling_.insert(candidate);
  else
    candidates_.want(candidate);
}

void TuningTask::judge_spilling() {
  const bool is_apart = candidates_.is_built_apart();
  if (is_apart && std::ssize(spilling_) < unsettled()) return;
  const bool others_are_right = candidates_.best_us() > 0;
  if (is_apart && !others_are_right && call_reserves()) return;
  for (const int candidate : std::exchange(spilling_, {})) {
    if (is_apart && others_are_right)
      reject(candidate, Verdict::kCompileFailed,
             "keeps registers or arrays in local memory; not measured, since others do without");
    else
      candidates_.want(candidate);
  }
}

// The word that counts among owners is its builder's, who would have to lie for its bytes.
void TuningTask::verified(int candidate, const Where& where) {
  CandidateBinary& built = *candidates_.binary(candidate);
  built.is_verified = true;
  candidates_.recovered(candidate);
  if (const auto before = not_loaded_.find(candidate); before != not_loaded_.end()) {
    if (before->second.built_by.worker != built.built_by.worker)
      bad_builders_.push_back(before->second.built_by.worker);
    not_loaded_.erase(before);
    votes_.erase(candidate);  // those were about other bytes
  }
  votes_[candidate].good(built.built_by, built.made);
  measured_by_[candidate] = where.by;
}

// A device takes no binary that asks too much of it, and none that is damaged: another build shows
// which it was. That neither loads is one worker's word, as a wrong result is: where nothing else came
// out right, another owner is asked (seek_second_opinion).
void TuningTask::not_loaded(int candidate, std::string log, const Reporter& by) {
  votes_[candidate].bad(by);
  const CandidateBinary& built = *candidates_.binary(candidate);
  if (not_loaded_.contains(candidate)) return reject(candidate, Verdict::kCompileFailed, log);
  const WorkerId builder = built.built_by.worker;
  not_loaded_[candidate] = {{}, {}, built.device, built.built_by, built.toolkit, built.made};
  candidates_.drop_binary(candidate);
  if (candidate == early_) set_early(-1);
  failed_transiently(candidate, builder, Verdict::kCompileFailed, std::move(log));
}

}  // namespace kiln
