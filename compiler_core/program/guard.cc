#include "compiler_core/program/guard.h"

namespace kiln {

Result<bool> Guard::holds(std::span<const int64_t> symbols) const {
  TRY(const int64_t actual, value.evaluate(symbols));
  return min <= actual && actual <= max;
}

std::string Guard::to_string() const {
  std::string text = value.to_string();
  if (min == max) return text + " == " + std::to_string(min);
  if (min > INT64_MIN) text = std::to_string(min) + " <= " + text;
  if (max < INT64_MAX) text += " <= " + std::to_string(max);
  return text;
}

Result<bool> all_hold(std::span<const Guard> guards, std::span<const int64_t> symbols) {
  for (const Guard& guard : guards) {
    TRY(const bool holds, guard.holds(symbols));
    if (!holds) return false;
  }
  return true;
}

}  // namespace kiln
