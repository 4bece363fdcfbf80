#include "coordinator/core/tuning/candidate_table.h"

#include <algorithm>
#include <limits>

namespace kiln {
namespace {

// How many candidates that failed before are searched for one that this worker may have. Those that
// are passed over wait for another worker, which exists.
constexpr size_t kLooks = 64;

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

CandidateTable::CandidateTable(const std::vector<Schedule>& schedules,
                               const std::map<std::string, std::string>& libraries)
    : schedules_(schedules), states_(schedules.size()) {
  if (libraries.empty()) return;
  for (int i = 0; i < size(); ++i) state(i).is_library = libraries.contains(template_of(i));
}

void CandidateTable::want(int i) {
  CandidateState& c = state(i);
  if (c.queued || c.leases > 0) return;
  c.queued = true;
  (troubles_.contains(i) ? again_ : fresh_).push_back(i);
}

std::vector<int> CandidateTable::take(const WorkerId& worker, int limit, bool others,
                                      const std::vector<std::string>& lacks) {
  std::vector<int> taken;
  while (lacks.empty() && !fresh_.empty() && std::ssize(taken) < limit) {
    taken.push_back(fresh_.front());
    fresh_.pop_front();
  }
  if (!lacks.empty())
    std::erase_if(fresh_, [&](int i) {
      if (std::ssize(taken) >= limit || contains(lacks, template_of(i))) return false;
      taken.push_back(i);
      return true;
    });
  if (taken.empty()) taken = take_retried(worker, others, lacks);
  for (int i : taken) {
    state(i).queued = false;
    state(i).leases = 1;
  }
  return taken;
}

// Alone, so that a bad one does not cost its neighbours their attempts.
std::vector<int> CandidateTable::take_retried(const WorkerId& worker, bool others,
                                              const std::vector<std::string>& lacks) {
  const size_t looks = std::min(kLooks, again_.size());
  for (size_t at = 0; at < looks; ++at) {
    const int i = again_[at];
    if (others && troubles_[i].avoid == worker) continue;
    if (contains(lacks, template_of(i))) continue;
    again_.erase(again_.begin() + static_cast<std::ptrdiff_t>(at));
    return {i};
  }
  return {};
}

std::vector<int> CandidateTable::take_all() {
  std::vector<int> taken(fresh_.begin(), fresh_.end());
  taken.insert(taken.end(), again_.begin(), again_.end());
  fresh_.clear();
  again_.clear();
  for (int i : taken) {
    state(i).queued = false;
    state(i).leases = 1;
  }
  return taken;
}

std::set<std::string> CandidateTable::queued_templates() const {
  std::set<std::string> names;
  for (const auto* queue : {&fresh_, &again_})
    for (const int i : *queue) names.insert(template_of(i));
  return names;
}

std::vector<int> CandidateTable::unqueue(std::string_view template_name) {
  std::vector<int> taken;
  for (auto* queue : {&fresh_, &again_})
    std::erase_if(*queue, [&](int i) {
      if (template_of(i) != template_name) return false;
      taken.push_back(i);
      state(i).queued = false;
      return true;
    });
  return taken;
}

void CandidateTable::release(int i) {
  if (state(i).leases > 0) --state(i).leases;
}

void CandidateTable::recall() {
  fresh_.clear();
  again_.clear();
  for (CandidateState& c : states_) {
    c.queued = false;
    c.leases = 0;
  }
}

void CandidateTable::measured(int i, double calibrated_us) {
  CandidateState& c = state(i);
  settled_ += !c.settled();
  c.measured = true;
  const bool was_best = c.screened_us > 0 && c.screened_us == best_us_;
  c.screened_us = calibrated_us;
  if (was_best) find_best();
  if (calibrated_us > 0 && !c.rejected && !c.is_library &&
      (best_us_ == 0 || calibrated_us < best_us_))
    best_us_ = calibrated_us;
}

void CandidateTable::reject(int i, Verdict verdict) {
  CandidateState& c = state(i);
  settled_ += !c.settled();
  c.rejected = true;
  c.verdict = verdict;
  binaries_.erase(i);
  troubles_.erase(i);
  if (c.screened_us > 0 && c.screened_us == best_us_) find_best();
}

void CandidateTable::reconsider(int i) {
  CandidateState& c = state(i);
  settled_ -= c.settled();
  c = {.leases = c.leases, .is_library = c.is_library};
}

void CandidateTable::find_best() {
  best_us_ = 0;
  for (const CandidateState& other : states_)
    if (!other.rejected && !other.is_library && other.screened_us > 0 &&
        (best_us_ == 0 || other.screened_us < best_us_))
      best_us_ = other.screened_us;
}

void CandidateTable::withdraw(std::string_view template_name) {
  unqueue(template_name);
  for (int i = 0; i < size(); ++i) {
    if (state(i).settled() || state(i).leases > 0 || template_of(i) != template_name) continue;
    reject(i, Verdict::kCompileFailed);
    state(i).withdrawn = true;
  }
}

void CandidateTable::recovered(int i) {
  const auto found = troubles_.find(i);
  if (found == troubles_.end()) return;
  const int deaths = found->second.runner_deaths;
  if (deaths == 0)
    troubles_.erase(found);
  else
    found->second = {0, 0, deaths, {}};
}

const CandidateBinary* CandidateTable::binary(int i) const {
  const auto found = binaries_.find(i);
  return found == binaries_.end() ? nullptr : &found->second;
}

CandidateBinary* CandidateTable::binary(int i) {
  const auto found = binaries_.find(i);
  return found == binaries_.end() ? nullptr : &found->second;
}

void CandidateTable::keep_best_binaries(size_t count) {
  if (binaries_.size() <= count) return;
  std::vector<int> held[2];  // by whether they call a library
  for (const auto& [i, binary] : binaries_) held[state(i).is_library].push_back(i);
  const auto median = [&](int i) {
    const double us = state(i).screened_us;
    return us > 0 ? us : std::numeric_limits<double>::infinity();
  };
  for (std::vector<int>& some : held) {
    std::ranges::stable_sort(some, {}, median);
    for (size_t i = count; i < some.size(); ++i) binaries_.erase(some[i]);
  }
}

}  // namespace kiln
