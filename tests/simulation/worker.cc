#include "tests/simulation/worker.h"

#include <algorithm>

namespace kiln::simulation {

std::unique_ptr<Worker> Worker::builder(std::string name, const Target& compiler, int compilers,
                                        Network& network, Random& random, const Truth& truth) {
  auto made = std::make_unique<Worker>(std::move(name), Target{}, 1.0, false, compilers, network,
                                       random, truth);
  made->slots_ = 0;
  made->builds_for_ = {compiler};
  return made;
}

void Worker::start() {
  id_ = name_ + "." + std::to_string(++incarnation_);
  leases_.clear();
  ended_.clear();
  results_.clear();
  draining_ = false;
  device_errors_ = 0;
  upgrade();
  network_.after(random_.between(0, 500), [this, incarnation = incarnation_] {
    if (incarnation == incarnation_) live();
  });
}

void Worker::live() {
  if (network_.faults() && random_.chance(0.03)) return die();
  if (draining_ && leases_.empty() && results_.empty()) return die();  // nothing left to do
  trouble();
  report();
  network_.after(random_.between(300, 1'000), [this, incarnation = incarnation_] {
    if (incarnation == incarnation_) live();
  });
}

void Worker::trouble() {
  if (!network_.faults()) return;
  if (random_.chance(0.02)) stalled_until_ms_ = network_.now_ms() + random_.between(500, 6'000);
  if (drifting_ && random_.chance(0.03))
    drifts_until_ms_ = network_.now_ms() + random_.between(2'000, 6'000);
  if (!random_.chance(0.02)) return;
  // The second fault takes the connection with it; the worker lives, and opens another.
  if (++device_errors_ == 2) network_.tell_coordinator(WorkerGone{id_});
}

void Worker::report() {
  // Half of the stalls are silent, the others show a worker that lives and gets nowhere.
  if (network_.now_ms() < stalled_until_ms_ && stalled_until_ms_ % 2 == 0) return;
  WorkerReport report;
  report.worker = id_;
  report.target = target_;
  report.slots = slots_;
  report.builds = compilers_ > 0;
  report.compilers = compilers_;
  report.builds_for = builds_for_;
  report.draining = draining_;
  report.device_errors = device_errors_;
  const bool drifts = network_.now_ms() < drifts_until_ms_;
  report.sentinel_us =
      100 * slowness_ * (drifts ? 1.5 : 1) * (1 + kCalibrationNoise * (2 * random_.fraction() - 1));
  for (const auto& [id, held] : leases_)
    report.leases.push_back({id, held.job.epoch, static_cast<int>(held.done)});
  report.results = results_;
  if (network_.faults() && !history_.empty() && random_.chance(0.1)) lie(report);
  network_.to_coordinator(ReportReceived{id_, std::move(report), templates_});
}

void Worker::lie(WorkerReport& report) {
  const auto chosen = random_.between(0, static_cast<int64_t>(history_.size()) - 1);
  CandidateResult old = history_[static_cast<size_t>(chosen)];
  for (double& us : old.measurement.samples_us) us /= 10;  // too good to be true
  if (!leases_.empty() && random_.chance(0.5)) {
    const auto& [id, held] = *leases_.begin();
    old.lease = id;
    old.epoch = held.job.epoch - 1;
    old.kernel_key = held.job.kernel_key;
    old.index = held.job.candidates.front().index;
    old.verdict = Verdict::kOk;
    lied_of_.insert(id);
  } else if (leases_.contains(old.lease) || lied_of_.contains(old.lease)) {
    // The lease may be open: what was acknowledged, and is not repeated, may have been the lie.
    return;  // that would be a lie nobody can tell from the truth
  }
  report.results.push_back(std::move(old));
}

void Worker::ordered(const WorkerOrders& orders) {
  for (const ResultAck& ack : orders.acks)
    std::erase_if(results_, [&](const CandidateResult& result) {
      return result.lease == ack.lease && result.index == ack.index;
    });
  std::erase_if(leases_, [&](const auto& entry) {
    const bool held = std::count(orders.leases.begin(), orders.leases.end(), entry.first) > 0;
    if (!held) ended_.insert(entry.first);
    return !held;
  });
  draining_ = draining_ || orders.drain;
  if (draining_) return;
  for (const Job& job : orders.jobs) {
    if (leases_.contains(job.lease) || ended_.contains(job.lease)) continue;
    leases_.emplace(job.lease, Held{job, 0});
    work(job.lease);
  }
}

// The next candidate, or all of a final, done after a while.
void Worker::work(uint64_t lease) {
  const int64_t stalled_ms = std::max<int64_t>(0, stalled_until_ms_ - network_.now_ms());
  network_.after(stalled_ms + random_.between(20, 400), [this, lease, incarnation = incarnation_] {
    if (incarnation == incarnation_) finish(lease);
  });
}

void Worker::finish(uint64_t lease) {
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return;
  if (network_.now_ms() < stalled_until_ms_) return work(lease);
  Held& held = found->second;
  const size_t count = held.job.kind == Job::Kind::kFinal ? held.job.candidates.size() : 1;
  for (size_t i = 0; i < count; ++i) {
    results_.push_back(try_candidate(held.job, held.job.candidates[held.done++]));
    history_.push_back(results_.back());
  }
  if (held.done < held.job.candidates.size()) {
    work(lease);
  } else {
    ended_.insert(lease);
    leases_.erase(found);
  }
  report();
}

CandidateResult Worker::try_candidate(const Job& job, const CandidateJob& candidate) {
  const TrueCandidate& truth = *truth_.by_key(job.kernel_key).find(candidate.schedule);
  CandidateResult result;
  result.lease = job.lease;
  result.epoch = job.epoch;
  result.kernel_key = job.kernel_key;
  result.index = candidate.index;
  const bool is_given = !candidate.binary.empty();
  result.compiled = !is_given;
  result.verdict = truth.verdict;
  // Whether a kernel is right shows when it runs.
  if (job.kind == Job::Kind::kBuild && truth.verdict != Verdict::kCompileFailed)
    result.verdict = Verdict::kOk;
  if (job.kind == Job::Kind::kFinal && truth.dies_in_finals) result.verdict = Verdict::kRunnerDied;
  if (network_.faults() && random_.chance(0.05))
    result.verdict = random_.chance(0.5) ? Verdict::kRunnerDied : Verdict::kTimedOut;
  if (result.verdict != Verdict::kOk) {
    result.log = "it failed";
    return result;
  }
  const double us = truth.us * slowness_ * (1 + kNoise * (2 * random_.fraction() - 1));
  const bool is_timed = job.kind == Job::Kind::kScreen || job.kind == Job::Kind::kFinal;
  if (is_timed) result.measurement.samples_us.assign(job.kind == Job::Kind::kFinal ? 40 : 20, us);
  const bool in_race = job.incumbent_us == 0 || us < job.incumbent_us * job.policy.race_drop;
  if (!is_given && (!is_timed || in_race)) {
    result.recipe_json = recipe_to_json(Recipe{});
    result.binary = Truth::binary(job.kernel_key, candidate.schedule);
  }
  return result;
}

void Worker::die() {
  // A killed process is noticed when its connection breaks; a lost host only by its silence.
  if (random_.chance(0.5))
    network_.after(random_.between(10, 500),
                   [this, gone = id_] { network_.tell_coordinator(WorkerGone{gone}); });
  ++incarnation_;
  id_.clear();
  network_.after(random_.between(100, 3'000), [this] { start(); });
}

}  // namespace kiln::simulation
