#include "coordinator/core/tuning/votes.h"

#include <algorithm>

namespace kiln {
namespace {

constexpr size_t kEnough = 2;  // voters that decide

std::set<std::string> voters(const std::set<Reporter>& reporters, Among among) {
  std::set<std::string> names;
  for (const Reporter& each : reporters)
    names.insert(among == Among::kOwners ? each.key : each.worker);
  return names;
}

}  // namespace

Votes::State Votes::state(Among among) const {
  std::set<std::string> all = voters(bad_, among);
  if (all.size() >= kEnough) return State::kRefuted;
  for (const auto& [made, reporters] : good_) {
    const std::set<std::string> some = voters(reporters, among);
    if (some.size() >= kEnough) return State::kConfirmed;
    all.insert(some.begin(), some.end());
  }
  return all.size() < kEnough ? State::kOpen : State::kDisputed;
}

bool Votes::may_ask(const Reporter& worker, Among among) const {
  if (among == Among::kOwners && worker.key.empty()) return false;
  const auto is_same = [&](const Reporter& other) {
    return worker.worker == other.worker || (among == Among::kOwners && worker.key == other.key);
  };
  return std::ranges::none_of(bad_, is_same) && !excused_.contains(worker.worker) &&
         std::ranges::none_of(
             good_, [&](const auto& group) { return std::ranges::any_of(group.second, is_same); });
}

Digest Votes::confirmed_bytes(Among among) const {
  for (const auto& [made, reporters] : good_)
    if (voters(reporters, among).size() >= kEnough) return made;
  return {};
}

std::vector<Reporter> Votes::of(const Digest& made) const {
  const auto found = good_.find(made);
  if (found == good_.end()) return {};
  return {found->second.begin(), found->second.end()};
}

// A voter has the builder's compiler, so that other bytes than two built are a lie, or a
// machine to look at.
std::vector<Reporter> Votes::minority(Among among) const {
  const bool confirmed = state(among) == State::kConfirmed;
  const Digest right = confirmed ? confirmed_bytes(among) : Digest{};
  std::vector<Reporter> others;
  if (confirmed) others.assign(bad_.begin(), bad_.end());
  for (const auto& [made, reporters] : good_)
    if (!confirmed || made != right)
      others.insert(others.end(), reporters.begin(), reporters.end());
  return others;
}

std::string Votes::describe() const {
  std::string text;
  const auto add = [&](const Reporter& by, const char* what) {
    text += (text.empty() ? "" : ", ") + by.worker +
            (by.key.empty() ? "" : " (key " + by.key + ")") + what;
  };
  for (const auto& [made, reporters] : good_)
    for (const Reporter& by : reporters)
      add(by, good_.size() > 1 ? " built other bytes and found them right" : " found it right");
  for (const Reporter& by : bad_) add(by, " found it wrong");
  return text;
}

Digest made_of(const std::string& recipe_json, const std::string& binary) {
  return Hasher("kiln.made.v1").add(recipe_json).add(binary).finish();
}

}  // namespace kiln
