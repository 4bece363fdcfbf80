// The winner of a tuning task is confirmed: another worker builds and runs it for itself
// (votes.h). One question at a time; whoever is asked is asked once.
#include <utility>

#include "coordinator/core/mutation.h"
#include "coordinator/core/tuning/failures.h"
#include "coordinator/core/tuning/tuning_task.h"

namespace kiln {
namespace {

constexpr double kSameTime = 2.0;   // times of two workers differ by less, or one is not believed
constexpr int kSecondOpinions = 4;  // candidates of a task that are tried again elsewhere

}  // namespace

TuningTask::Clearance TuningTask::clear(int candidate, Jury& jury) {
  Votes& votes = votes_[candidate];
  if (is_decided(candidate, Among::kOwners)) return decided(candidate, Among::kOwners);
  if (candidates_.binary(candidate)->standing.is_enough) return Clearance::kMayWin;
  const bool must = must_be_confirmed(candidate);
  if ((confirm_ >= 1 || must) && jury.has_voter(*this, candidate, Among::kOwners))
    return ask(candidate, Among::kOwners);
  const Votes::State owners = votes.state(Among::kOwners);
  if (owners == Votes::State::kDisputed && (must || !votes.differs_in_bytes_alone()))
    return give_up(candidate);
  if (must) return ask(candidate, Among::kOwners);  // TuningScheduler bounds how long
  if (owners == Votes::State::kDisputed) return Clearance::kMayWin;

  if (is_decided(candidate, Among::kWorkers)) return decided(candidate, Among::kWorkers);
  const bool differ = votes.state(Among::kWorkers) == Votes::State::kDisputed;
  const WorkerId& builder = candidates_.binary(candidate)->built_by.worker;
  const bool has_voter = jury.has_voter(*this, candidate, Among::kWorkers);
  const bool is_sample =
      sampled_.insert(candidate).second && jury.samples(key_, builder, has_voter);
  if (has_voter && (differ || is_sample)) return ask(candidate, Among::kWorkers);
  return differ && !votes.differs_in_bytes_alone() ? give_up(candidate) : Clearance::kMayWin;
}

// A worker that may only screen makes no winner alone, whatever --confirm says.
bool TuningTask::must_be_confirmed(int candidate) const {
  const CandidateBinary* built = candidate < 0 ? nullptr : candidates_.binary(candidate);
  const bool is_a_screeners =
      built != nullptr && !built->standing.times_finals && !mutated(Mutation::kTrustScreeners);
  return confirm_ >= 2 || is_a_screeners;
}

bool TuningTask::is_decided(int candidate, Among among) const {
  const auto votes = votes_.find(candidate);
  if (votes == votes_.end()) return false;
  const Votes::State state = votes->second.state(among);
  return state == Votes::State::kConfirmed || state == Votes::State::kRefuted;
}

// Reporters that two others contradict are not believed any more.
TuningTask::Clearance TuningTask::decided(int candidate, Among among) {
  const Votes& votes = votes_[candidate];
  for (const Reporter& liar : votes.minority(among))
    distrusted_.push_back({liar.worker, liar.key, key_, votes.describe()});
  if (votes.state(among) == Votes::State::kRefuted) {
    reject(candidate, Verdict::kWrongResult, "workers found it wrong: " + votes.describe());
    return Clearance::kGone;
  }
  const Digest made = votes.confirmed_bytes(among);
  if (const auto other = others_.find({candidate, made}); other != others_.end()) {
    const Reporter by = other->second.binary.built_by;
    candidates_.keep_binary(candidate, std::move(other->second.binary));
    if (candidate == handed_out_) refuted_ = true;  // those were other bytes
    if (candidate == early_) set_early(-1);
    const bool slower = correct_time(candidate, std::move(other->second.measurement), by);
    others_.erase(other);
    if (slower) return Clearance::kGone;  // the fastest is elected anew
  }
  return Clearance::kMayWin;
}

TuningTask::Clearance TuningTask::ask(int candidate, Among among) {
  stage_ = Stage::kConfirming;
  asked_ = candidate;
  asked_among_ = among;
  candidates_.want(candidate);
  return Clearance::kAsked;
}

// Not for good: who lies may be gone the next time.
TuningTask::Clearance TuningTask::give_up(int candidate) {
  const std::string why = "workers do not agree: " + votes_[candidate].describe();
  disputed_ = true;
  disputes_.push_back(why);
  reject(candidate, Verdict::kDeviceLost, why);
  return Clearance::kGone;
}

bool TuningTask::question_is_out() const {
  return asked_ >= 0 && (candidates_[asked_].queued || candidates_[asked_].leases > 0);
}

bool TuningTask::may_vote(int candidate, Among among, const Reporter& worker,
                          const std::string& toolkit) const {
  const CandidateBinary* built = candidates_.binary(candidate);
  if (built == nullptr) {
    const auto votes = votes_.find(candidate);
    return votes == votes_.end() || votes->second.may_ask(worker, among);
  }
  // Its builder has no vote while it is not verified, and confirms nothing by itself either.
  Votes votes = votes_.contains(candidate) ? votes_.at(candidate) : Votes();
  votes.good(built->built_by, built->made);
  // A worker that need not build the candidate may have any compiler.
  return (offered(candidate) != nullptr || built->toolkit == toolkit) &&
         votes.may_ask(worker, among);
}

void TuningTask::withdraw_question() {
  for (const int i : candidates_.take_all()) candidates_.release(i);
  asked_ = -1;
}

// The answer to the question; the verdict on the candidate follows from all votes (elect).
void TuningTask::take_vote(CandidateResult result, std::optional<Recipe> recipe,
                           const Where& where) {
  const int candidate = std::exchange(asked_, -1);
  Votes& votes = votes_[candidate];
  if (result.verdict != Verdict::kOk || !recipe) {
    if (failure_class(result.verdict) == FailureClass::kTerminal) {
      votes.bad(where.by);
      if (candidates_.binary(candidate) == nullptr)  // a second opinion, and the same
        reject(candidate, result.verdict, std::move(result.log));
    } else {
      votes.excuse(where.by.worker);
      ++retries_;
    }
    return;
  }
  const Digest made = made_of(result.recipe_json, result.binary);
  if (candidates_.binary(candidate) == nullptr) {  // a second opinion, and another
    votes = Votes();  // the first was one worker's, perhaps of long ago
    candidates_.reconsider(candidate);
    const auto kind = mode_ == Mode::kDefault ? Job::Kind::kCompile : Job::Kind::kScreen;
    return keep(std::move(result), kind, *std::move(recipe), where);
  }
  votes.good(where.by,
             mutated(Mutation::kBelieveAnyBytes) ? candidates_.binary(candidate)->made : made);
  for (double& us : result.measurement.samples_us) us *= where.calibration;
  if (made == candidates_.binary(candidate)->made) {
    correct_time(candidate, std::move(result.measurement), where.by);
    return;
  }
  // How long other bytes take says nothing of these: the dispute is decided first.
  CandidateBinary binary{
      *std::move(recipe), std::move(result.binary), where.device, where.by, where.toolkit, made,
      where.standing};
  others_.try_emplace({candidate, made}, Other{std::move(binary), std::move(result.measurement)});
}

// A time that the second worker does not find again counts for nothing: its own does.
bool TuningTask::correct_time(int candidate, Measurement measurement, const Reporter& by) {
  if (mode_ == Mode::kDefault || measurement.samples_us.empty()) return false;
  if (measurement.median_us() <= kSameTime * median_of(candidate) ||
      mutated(Mutation::kBelieveTimes))
    return false;
  candidates_.measured(candidate, measurement.median_us());
  finals_.finished(candidate, std::move(measurement));
  measured_by_[candidate] = by;
  if (finals_.finalists().size() == 1) finals_.enter({});  // others may be faster than that
  return true;
}

// A program is refused for what one worker said only where no other owner can be asked.
bool TuningTask::seek_second_opinion(const Jury& jury) {
  if (confirm_ < 1) return false;
  for (int i = 0; i < candidates_.size() && opinions_ < kSecondOpinions; ++i) {
    const auto votes = votes_.find(i);
    if (!candidates_[i].rejected || candidates_[i].withdrawn || votes == votes_.end() ||
        votes->second.empty() || votes->second.state(Among::kOwners) != Votes::State::kOpen ||
        failure_class(candidates_[i].verdict) != FailureClass::kTerminal)
      continue;
    if (!jury.has_voter(*this, i, Among::kOwners)) continue;
    ++opinions_;
    (void)ask(i, Among::kOwners);
    return true;
  }
  return false;
}

Provenance TuningTask::provenance(int candidate) const {
  const CandidateBinary& built = *candidates_.binary(candidate);
  Provenance provenance;
  provenance.built = built.built_by;
  if (const auto by = measured_by_.find(candidate); by != measured_by_.end())
    provenance.measured = by->second;
  const auto votes = votes_.find(candidate);
  if (votes == votes_.end()) return provenance;
  for (const Reporter& by : votes->second.of(built.made))
    if (by != built.built_by) provenance.confirmed.push_back(by);
  return provenance;
}

}  // namespace kiln
