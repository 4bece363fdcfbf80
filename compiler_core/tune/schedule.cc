#include "compiler_core/tune/schedule.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/base/text.h"

namespace kiln {
namespace {

constexpr size_t kMaxTextLength = 4096;

bool is_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// Names joined by dots.
bool is_template_name(std::string_view text) {
  for (size_t dot; (dot = text.find('.')) != std::string_view::npos; text.remove_prefix(dot + 1))
    if (!is_name(text.substr(0, dot))) return false;
  return is_name(text);
}

Result<Decision> parse_decision(std::string_view word) {
  const size_t equals = word.find('=');
  const auto bad = [&] {
    return fail(Code::kInvalidArgument,
                fmt::format("'{}' is not a decision of a schedule", word.substr(0, 64)));
  };
  if (equals == std::string_view::npos || !is_name(word.substr(0, equals))) return bad();
  Decision decision{std::string(word.substr(0, equals)), 0};
  if (!read_number(word.substr(equals + 1), decision.value)) return bad();
  return decision;
}

}  // namespace

int64_t Schedule::get(std::string_view name, int64_t fallback) const {
  for (const Decision& decision : decisions)
    if (decision.name == name) return decision.value;
  return fallback;
}

std::string Schedule::to_string() const {
  std::string text = template_name;
  for (const Decision& decision : decisions)
    text += fmt::format(" {}={}", decision.name, decision.value);
  return text;
}

Result<Schedule> Schedule::parse(std::string_view text) {
  if (text.size() > kMaxTextLength) return fail(Code::kInvalidArgument, "a schedule is too long");
  const size_t space = std::min(text.find(' '), text.size());
  Schedule schedule;
  schedule.template_name = text.substr(0, space);
  if (!is_template_name(schedule.template_name))
    return fail(Code::kInvalidArgument, fmt::format("'{}' is not the name of a kernel template",
                                                    schedule.template_name.substr(0, 64)));
  text.remove_prefix(space);
  while (!text.empty()) {
    text.remove_prefix(1);  // the space
    const size_t length = std::min(text.find(' '), text.size());
    TRY(Decision decision, parse_decision(text.substr(0, length)));
    for (const Decision& earlier : schedule.decisions)
      if (earlier.name == decision.name)
        return fail(Code::kInvalidArgument,
                    fmt::format("a schedule decides '{}' twice", decision.name.substr(0, 64)));
    schedule.decisions.push_back(std::move(decision));
    text.remove_prefix(length);
  }
  return schedule;
}

void add_library_version(Schedule& schedule, std::string_view version) {
  int64_t number = 0;
  if (!read_number(version, number)) return;
  schedule.decisions.push_back({std::string(kVersionDecision), number});
}

void add_unless_present(std::vector<Schedule>& space, Schedule schedule) {
  if (std::find(space.begin(), space.end(), schedule) == space.end())
    space.push_back(std::move(schedule));
}

}  // namespace kiln
