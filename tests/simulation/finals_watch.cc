#include "tests/simulation/finals_watch.h"

#include <algorithm>

namespace kiln::simulation {

FinalsWatch::Schedules FinalsWatch::schedules_of(const Job& job) {
  Schedules schedules;
  for (const CandidateJob& candidate : job.candidates)
    schedules.insert(candidate.schedule.to_string());
  return schedules;
}

void FinalsWatch::incarnation_begins() {
  for (const auto& [lease, final] : finals_)
    if (final.done == final.all) finished_[final.kernel] = final.all;
  finals_.clear();
  on_the_way_.clear();
}

void FinalsWatch::leased(const Job& job) {
  if (job.kind != Job::Kind::kFinal) return;
  finals_.try_emplace(job.lease, Final{job.kernel_key, schedules_of(job), {}});
  finished_.erase(
      job.kernel_key);  // another set of them is raced: what follows is of this incarnation
}

void FinalsWatch::recorded(const ResultAck& ack, const TuningRecord& record) {
  if (finals_.contains(ack.lease) && record.verdict == Verdict::kOk)
    on_the_way_[{ack.lease, ack.index}] = record.schedule.to_string();
}

void FinalsWatch::lost(const TuningRecord& record) {
  with_losses_.insert(record.kernel_key);
}

void FinalsWatch::durable(const ResultAck& ack) {
  const auto found = on_the_way_.find({ack.lease, ack.index});
  if (found == on_the_way_.end()) return;
  finals_.at(ack.lease).done.insert(found->second);
  on_the_way_.erase(found);
}

std::optional<std::string> FinalsWatch::again(const Job& job) const {
  if (job.kind != Job::Kind::kFinal) return std::nullopt;
  const auto known = finished_.find(job.kernel_key);
  if (known == finished_.end() || with_losses_.contains(job.kernel_key) ||
      !std::ranges::includes(known->second, schedules_of(job)))
    return std::nullopt;
  return "a final is run again that an earlier life has the whole of";
}

}  // namespace kiln::simulation
