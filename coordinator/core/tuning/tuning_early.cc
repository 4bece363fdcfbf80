// `default` mode where workers build and verify as two jobs: the first choice is built by whoever has
// a compiler free, may be answered then, and is verified behind the answer.
//
//   to be built --built--> to be verified --right--> wins
//        ^                      `--wrong: the next choice--'
#include "coordinator/core/mutation.h"
#include "coordinator/core/tuning/tuning_task.h"

namespace kiln {

void TuningTask::advance_default(Jury& jury) {
  while (first_open_ < candidates_.size() && candidates_[first_open_].rejected) ++first_open_;
  if (first_open_ == candidates_.size()) {
    if (!seek_second_opinion(jury)) fail(no_survivor());
    first_open_ = 0;  // what is asked about may survive
    return;
  }
  const int choice = first_open_;
  const bool apart = jury.has_builder(*this, choice);
  // Nobody is left who could verify it as it is: whoever is there builds its own.
  if (is_unverified(choice) && !apart && candidates_[choice].leases == 0) {
    candidates_.drop_binary(choice);
    set_early(-1);
  }
  candidates_.build_apart(apart);
  if (is_unverified(choice) && may_be_early(choice, jury)) set_early(choice);
  if (!has_binary(choice) || is_unverified(choice)) return candidates_.want(choice);
  if (all_clear(choice, jury)) win(choice);
}

bool TuningTask::waits_for_verification() const {
  return stage_ == Stage::kScreening && mode_ == Mode::kDefault && is_unverified(first_open_);
}

// The rules of a winner, as far as they can be kept before it is verified (clear()): where another
// owner can or must confirm it, its builder's word is not enough. A user's own kernel is run by nobody
// before a worker has run it in its sandbox and found it right.
bool TuningTask::may_be_early(int candidate, const Jury& jury) const {
  if (mutated(Mutation::kEarlyOnOneWord)) return true;
  if (family_ == Family::kCustom) return false;
  if (candidates_.binary(candidate)->standing.is_enough) return true;
  return !must_be_confirmed(candidate) &&
         (confirm_ < 1 || !jury.has_voter(*this, candidate, Among::kOwners));
}

bool TuningTask::is_unverified(int candidate) const {
  const CandidateBinary* built =
      candidate < candidates_.size() ? candidates_.binary(candidate) : nullptr;
  return built != nullptr && !built->is_verified;
}

void TuningTask::set_early(int candidate) {
  if (early_ == candidate) return;
  early_ = candidate;
  early_changed_ = true;
}

std::optional<ProgramKernel> TuningTask::early() const {
  if (stage_ == Stage::kStoring || stage_ == Stage::kDone) return winner_;
  if (stage_ == Stage::kFailed || early_ < 0 || !has_binary(early_)) return std::nullopt;
  ProgramKernel kernel = kernel_of(early_);
  kernel.report = report();
  kernel.provenance = provenance(early_);
  kernel.verified = !is_unverified(early_);
  return kernel;
}

std::optional<ShareBinary> TuningTask::hand_out() {
  if (stage_ >= Stage::kStoring || early_ < 0) return std::nullopt;
  handed_out_ = early_;
  const CandidateBinary& built = *candidates_.binary(early_);
  return ShareBinary{Digest::of(built.bytes), built.bytes};
}

}  // namespace kiln
