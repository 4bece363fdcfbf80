// The codec of schedules: from a template's struct of decisions to a Schedule and back. A struct
// lists its members once, in the order in which they are written:
//
//   struct CpuScanSchedule {
//     static constexpr std::string_view kTemplate = "cpu.scan";
//     int lanes = 8;
//     int64_t split = 1;
//     static void fields(auto& f, auto& s) {
//       f("lanes", s.lanes, powers_of_two(4, 16));
//       f("split", s.split, between(1, 4096));
//     }
//     bool go_together() const;  // optional: what decisions allow one another
//   };
//
// Names, the numbers of enumerators and the members' initial values are persisted: an initial value
// is what a schedule means that was written before the decision existed.
#pragma once

#include <string>

#include "compiler_core/base/math.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

// The legal values of a decision.
struct Values {
  int64_t least = 0, most = 1;
  int64_t step = 1;     // they are multiples of it
  bool powers = false;  // they are powers of two

  constexpr bool has(int64_t value) const {
    return value >= least && value <= most && value % step == 0 &&
           (!powers || is_power_of_two(value));
  }
};
constexpr Values between(int64_t least, int64_t most) {
  return {least, most};
}
constexpr Values multiples_of(int64_t step, int64_t least, int64_t most) {
  return {least, most, step};
}
constexpr Values powers_of_two(int64_t least, int64_t most) {
  return {least, most, 1, true};
}
inline constexpr Values kVectorLanes = powers_of_two(4, 16);  // of a vector on the CPU
inline constexpr Values kBlockSizes = between(1, int64_t{1} << 24);

template <class Decisions>
Schedule to_schedule(const Decisions& decisions) {
  Schedule schedule{std::string(Decisions::kTemplate), {}};
  const auto write = [&](const char* name, auto value, Values = {}) {
    schedule.decisions.push_back({name, static_cast<int64_t>(value)});
  };
  Decisions::fields(write, decisions);
  return schedule;
}

// kInvalidArgument when the schedule is another template's, when a decision's value is not legal
// (the message names it), or when two do not go together.
template <class Decisions>
Result<Decisions> decisions_of(const Schedule& schedule) {
  const auto refuse = [&](const std::string& why) {
    return fail(Code::kInvalidArgument, why + ": " + schedule.to_string());
  };
  if (schedule.template_name != Decisions::kTemplate)
    return refuse("not a schedule of " + std::string(Decisions::kTemplate));
  Decisions decisions;
  std::string wrong;
  const auto read = [&]<class T>(const char* name, T& value, Values values = {}) {
    const int64_t given = schedule.get(name, static_cast<int64_t>(value));
    if (values.has(given))
      value = static_cast<T>(given);
    else if (wrong.empty())
      wrong = name;
  };
  Decisions::fields(read, decisions);
  if (!wrong.empty()) return refuse(wrong + " is out of range");
  if constexpr (requires { decisions.go_together(); })
    if (!decisions.go_together()) return refuse("decisions that do not go together");
  return decisions;
}

}  // namespace kiln
