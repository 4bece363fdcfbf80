#include "compiler_core/program/audience.h"

#include <algorithm>

namespace kiln {
namespace {

std::string line(std::string_view kind, std::string_view name) {
  return std::string(kind) + " " + std::string(name);
}

}  // namespace

Audience Audience::of_user(std::string_view name) {
  return parse(line("user", name));
}

Audience Audience::of_team(std::string_view name) {
  return parse(line("team", name));
}

bool Audience::admits(const Viewer& viewer) const {
  return is_all() || viewer.sees_all ||
         (!viewer.user.empty() && named_.contains(line("user", viewer.user))) ||
         (!viewer.team.empty() && named_.contains(line("team", viewer.team)));
}

bool Audience::covers(const Audience& other) const {
  return is_all() || (!other.is_all() && std::ranges::includes(named_, other.named_));
}

void Audience::add(const Audience& other) {
  if (is_all() || other.is_all())
    named_.clear();
  else
    named_.insert(other.named_.begin(), other.named_.end());
}

std::string Audience::to_text() const {
  std::string text;
  for (const std::string& each : named_) text += (text.empty() ? "" : "\n") + each;
  return text;
}

Audience Audience::parse(std::string_view text) {
  Audience audience;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    audience.named_.emplace(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return audience;
}

}  // namespace kiln
