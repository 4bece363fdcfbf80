// The graph text of |x| in a roundabout way: kRounds times the root of the square. Offered kernels
// compute it directly, and so are faster than any of Kiln's own.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>

namespace kiln::testing {

// Input and output: f32[elements].
inline std::string slow_magnitude_text(int64_t elements) {
  constexpr int kRounds = 64;
  std::string text = fmt::format("kiln.graph 1\n%0 = input 0 : f32[{}]\n", elements);
  for (int i = 0; i < kRounds; ++i)
    text += fmt::format("%{0} = mul %{1} %{1} : f32[{3}]\n%{2} = sqrt %{0} : f32[{3}]\n", 2 * i + 1,
                        2 * i, 2 * i + 2, elements);
  return text + fmt::format("return %{}\n", 2 * kRounds);
}

}  // namespace kiln::testing
