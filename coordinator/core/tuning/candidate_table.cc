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
                               const std::map<std::string, std::string>& libraries,
                               const std::map<std::string, OfferedKernel>& offered)
    : schedules_(schedules), states_(schedules.size()) {
  if (libraries.empty() && offered.empty()) return;
  for (int i = 0; i < size(); ++i) {
    state(i).is_library = libraries.contains(template_of(i));
    state(i).is_offered = offered.contains(template_of(i));
  }
}

void CandidateTable::want(int i) {
  CandidateState& c = state(i);
  if (c.queued || c.leases > 0) return;
  c.queued = true;
  Queue& queue = of(line_of(i));
  (troubles_.contains(i) ? queue.again : queue.fresh).push_back(i);
}

Line CandidateTable::line_of(int i) const {
  const CandidateBinary* built = binary(i);
  const bool is_built = built != nullptr && !built->is_verified;
  const bool is_made = is_built || (*this)[i].is_library || (*this)[i].is_offered;
  return apart_ && !is_made ? Line::kBuild : Line::kDevice;
}

void CandidateTable::build_apart(bool apart) {
  if (apart_ == apart) return;
  apart_ = apart;
  for (const int i : unqueue_all()) want(i);
}

std::vector<int> CandidateTable::unqueue_all() {
  std::vector<int> taken;
  for (Queue& queue : lines_) {
    taken.insert(taken.end(), queue.fresh.begin(), queue.fresh.end());
    taken.insert(taken.end(), queue.again.begin(), queue.again.end());
    queue = {};
  }
  for (const int i : taken) state(i).queued = false;
  return taken;
}

std::vector<int> CandidateTable::take(Line line, const WorkerId& worker, int limit, bool others,
                                      const std::vector<std::string>& lacks) {
  Queue& queue = of(line);
  std::vector<int> taken;
  while (lacks.empty() && !queue.fresh.empty() && std::ssize(taken) < limit) {
    taken.push_back(queue.fresh.front());
    queue.fresh.pop_front();
  }
  if (!lacks.empty())
    std::erase_if(queue.fresh, [&](int i) {
      if (std::ssize(taken) >= limit || contains(lacks, template_of(i))) return false;
      taken.push_back(i);
      return true;
    });
  if (taken.empty()) taken = take_retried(queue, worker, others, lacks);
  for (int i : taken) {
    state(i).queued = false;
    state(i).leases = 1;
  }
  return taken;
}

// Alone, so that a bad one does not cost its neighbours their attempts.
std::vector<int> CandidateTable::take_retried(Queue& queue, const WorkerId& worker, bool others,
                                              const std::vector<std::string>& lacks) {
  std::deque<int>& again = queue.again;
  const size_t looks = std::min(kLooks, again.size());
  for (size_t at = 0; at < looks; ++at) {
    const int i = again[at];
    if (others && troubles_[i].avoid == worker) continue;
    if (contains(lacks, template_of(i))) continue;
    again.erase(again.begin() + static_cast<std::ptrdiff_t>(at));
    return {i};
  }
  return {};
}

std::vector<int> CandidateTable::take_all() {
  std::vector<int> taken = unqueue_all();
  for (int i : taken) state(i).leases = 1;
  return taken;
}

std::set<std::string> CandidateTable::queued_templates() const {
  std::set<std::string> names;
  for (const Queue& line : lines_)
    for (const auto* queue : {&line.fresh, &line.again})
      for (const int i : *queue) names.insert(template_of(i));
  return names;
}

std::vector<int> CandidateTable::unqueue(std::string_view template_name) {
  std::vector<int> taken;
  for (Queue& line : lines_)
    for (auto* queue : {&line.fresh, &line.again})
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
  lines_ = {};
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
  c = {.leases = c.leases, .is_library = c.is_library, .is_offered = c.is_offered};
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
    withdraw(i);
  }
}

void CandidateTable::withdraw(int i) {
  reject(i, Verdict::kCompileFailed);
  state(i).withdrawn = true;
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
  std::vector<int> held[2];  // by whether they call a library; what is not tried yet is kept
  for (const auto& [i, binary] : binaries_)
    if (binary.is_verified) held[state(i).is_library].push_back(i);
  const auto median = [&](int i) {
    const double us = state(i).screened_us;
    return us > 0 ? us : std::numeric_limits<double>::infinity();
  };
  for (std::vector<int>& some : held) {
    std::ranges::stable_sort(some, {}, median);
    for (size_t i = count; i < some.size(); ++i) binaries_.erase(some[i]);
  }
}

int64_t CandidateTable::unverified_bytes() const {
  int64_t bytes = 0;
  for (const auto& [i, binary] : binaries_)
    if (!binary.is_verified) bytes += std::ssize(binary.bytes);
  return bytes;
}

void CandidateTable::drop_unverified() {
  std::erase_if(binaries_, [this](const auto& held) {
    return !held.second.is_verified && state(held.first).leases == 0;
  });
}

bool CandidateTable::has_unverified() const {
  return std::ranges::any_of(binaries_, [](const auto& held) { return !held.second.is_verified; });
}

}  // namespace kiln
