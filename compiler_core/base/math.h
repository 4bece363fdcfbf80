// Integer arithmetic on sizes, counts and bytes. Pure functions. The same for sizes with symbols is
// in kernels/printing/size.h.
#pragma once

#include <cstdint>

namespace kiln {

// The least integer that is not below a / b, without overflow. REQUIRES: b > 0.
constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return a / b + (a % b > 0 ? 1 : 0);
}

// The least multiple of `step` that is not below `value`. REQUIRES: step > 0, and the result fits.
constexpr int64_t round_up(int64_t value, int64_t step) {
  return ceil_div(value, step) * step;
}

// About `wanted` of `size`: one of equal blocks of whole tiles.
constexpr int64_t even_block(int64_t size, int64_t wanted, int64_t tile) {
  return round_up(ceil_div(size, ceil_div(size, wanted)), tile);
}

// Whether x is 1, 2, 4, ...; false for 0 and below.
constexpr bool is_power_of_two(int64_t x) {
  return x > 0 && (x & (x - 1)) == 0;
}

}  // namespace kiln
