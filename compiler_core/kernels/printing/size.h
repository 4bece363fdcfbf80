// Sizes in generated code: how a Dim is spelled there, and what is known of one before its symbols
// have values. Inside a kernel symbol i is the variable s{i}. Pure functions.
#pragma once

#include <fmt/format.h>

#include <string>

#include "compiler_core/base/dim.h"

namespace kiln {

// C text that stands as an operand anywhere: "64", "s0", "(2 * s0 + 4)".
std::string size_text(const Dim& size);
// The same, of type long: "64L".
std::string long_text(const Dim& size);
// C text of ceil(size / step).
std::string ceil_text(const Dim& size, int64_t step);

// ceil(size / step) where it is a polynomial: a constant size, or one that `step` divides.
Result<Dim> ceil_divide(const Dim& size, int64_t step);
// ceil(size / step) * step, or a little more where that is no polynomial.
Dim round_up(const Dim& size, int64_t step);

// Whether they hold for all values of the symbols, none of which is negative. Of an invalid Dim
// (which says "unknown" here) nothing is known.
bool is_at_least(const Dim& a, const Dim& b);  // a >= b
bool is_less(const Dim& a, const Dim& b);      // a < b
bool is_multiple(const Dim& size, int64_t of);

// The greatest power of two, `most` at the most, that divides `size` for all values of the symbols:
// what vectors and alignment may count on. REQUIRES: `most` is a power of two.
int64_t known_divisor(const Dim& size, int64_t most = 16);

}  // namespace kiln

template <>
struct fmt::formatter<kiln::Dim> : fmt::formatter<std::string> {
  template <class Context>
  auto format(const kiln::Dim& size, Context& context) const {
    return fmt::formatter<std::string>::format(kiln::size_text(size), context);
  }
};
