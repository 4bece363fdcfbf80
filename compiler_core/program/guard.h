// Guard: what must hold of a call's sizes for a program to serve it. A value.
#pragma once

#include <vector>

#include "compiler_core/base/dim.h"

namespace kiln {

// A size that a program takes as it comes.
struct ProgramSymbol {
  int64_t min = 0, max = INT64_MAX;  // both served
  int64_t hint = 0;                  // what it was tuned at; 0 when unknown
  bool operator==(const ProgramSymbol&) const = default;
};

struct Guard {
  Dim value;
  int64_t min = 0, max = INT64_MAX;
  bool operator==(const Guard&) const = default;

  // Whether min <= value <= max. kInvalidArgument when a symbol is unbound or the value overflows.
  // Allocates nothing when it succeeds.
  Result<bool> holds(std::span<const int64_t> symbols) const;
  // "1 <= s0 <= 4096", "s0*s1 <= 65536"
  std::string to_string() const;
};

// Whether all of them hold.
Result<bool> all_hold(std::span<const Guard> guards, std::span<const int64_t> symbols);

}  // namespace kiln
