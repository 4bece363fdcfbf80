// Schedule: an ordered, self-describing list of decisions about how one kernel is written. Text:
// "row_reduction vector=16 unroll=4 rows=1 stage=1". Names and meanings are persisted in tuning
// records: a decision is added with a default, never renamed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/plan/workload.h"

namespace kiln {

struct Decision {
  std::string name;
  int64_t value = 0;
  bool operator==(const Decision&) const = default;
};

struct Schedule {
  Family family = Family::kPointwise;
  std::vector<Decision> decisions;

  bool operator==(const Schedule&) const = default;
  // The value of `name`, or `fallback` when the schedule predates it.
  int64_t get(std::string_view name, int64_t fallback) const;
  std::string to_string() const;
  static Result<Schedule> parse(std::string_view text);
};

}  // namespace kiln
