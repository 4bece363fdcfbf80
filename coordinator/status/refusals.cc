#include "coordinator/status/refusals.h"

#include <algorithm>
#include <utility>

namespace kiln {
namespace {

constexpr size_t kNamed = 100;

std::string name_of(const std::string& user) {
  return user.empty() ? "local" : user;
}

}  // namespace

void Refusals::count(const std::string& user, Code code) {
  if (code != Code::kOverloaded && code != Code::kPermissionDenied) return;
  for (Counts* counts : {&users_[user], &since_line_[user], &all_})
    ++(code == Code::kOverloaded ? counts->overloaded : counts->denied);
}

std::vector<LogLine> Refusals::take_lines(int64_t now_ms) {
  if (now_ms < next_line_ms_ || since_line_.empty()) return {};
  next_line_ms_ = now_ms + kLineEveryMs;
  std::vector<LogLine> lines;
  for (const auto& [user, counts] : std::exchange(since_line_, {})) {
    LogLine line("refused", LogLine::Level::kWarning);
    line.add("user", name_of(user))
        .add(to_string(Code::kOverloaded), counts.overloaded)
        .add(to_string(Code::kPermissionDenied), counts.denied);
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<RefusedStats> Refusals::stats() const {
  std::vector<RefusedStats> stats;
  for (const auto& [user, counts] : users_) stats.push_back({name_of(user), counts.all()});
  std::ranges::stable_sort(stats, std::greater(), &RefusedStats::count);
  if (stats.size() > kNamed) stats.resize(kNamed);
  return stats;
}

std::vector<RefusedStats> Refusals::stats_of(const std::string& user) const {
  const auto found = users_.find(user);
  if (found == users_.end()) return {};
  return {{name_of(user), found->second.all()}};
}

std::map<std::string, int64_t> Refusals::by_reason() const {
  return {{std::string(to_string(Code::kOverloaded)), all_.overloaded},
          {std::string(to_string(Code::kPermissionDenied)), all_.denied}};
}

}  // namespace kiln
