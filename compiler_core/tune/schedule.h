// Schedule: an ordered, self-describing list of decisions about how a kernel template
// (kernels/kernel_template.h) writes one kernel. Text: "cpu.row_reduction lanes=16 unroll=4
// rows=1". Names and meanings are persisted in tuning records: a decision is added with a default,
// never renamed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/base/result.h"

namespace kiln {

struct Decision {
  std::string name;
  int64_t value = 0;
  bool operator==(const Decision&) const = default;
};

struct Schedule {
  std::string template_name;
  std::vector<Decision> decisions;

  bool operator==(const Schedule&) const = default;
  // The value of `name`, or `fallback` when the schedule predates it.
  int64_t get(std::string_view name, int64_t fallback) const;
  std::string to_string() const;
  static Result<Schedule> parse(std::string_view text);
};

// A decision of a schedule that calls a library: the version that is to be called; without it, any.
inline constexpr std::string_view kVersionDecision = "version";
// Adds it. `version`: as the library says it, a number.
void add_library_version(Schedule& schedule, std::string_view version);

// Appends `schedule` unless `space` has it.
void add_unless_present(std::vector<Schedule>& space, Schedule schedule);

}  // namespace kiln
