// A kernel that is right only at the sizes it was measured at is wrong: the ways to be so, and what
// verification says of each. The host's kernels and the device's are held to the same rows.
#pragma once

#include <string>
#include <vector>

#include "compiler_core/tune/measurement.h"

namespace kiln::test {

// The workload: measured at 24 rows, verified at others too.
inline constexpr char kSquares[] =
    "kiln.graph 1\n"
    "s0 = symbol 0..4096 hint 24\n"
    "%0 = input 0 : f32[s0,8]\n"
    "%1 = mul %0 %0 : f32[s0,8]\n"
    "return %1\n";
inline const std::vector<int64_t> kMeasuredRows = {24};
inline const std::vector<int64_t> kOtherRows = {0, 1, 25, 23, 51};

// What goes before and after the statement that is right. It sees `s0`, `out`, and `last`, which
// holds once in a launch.
struct SizeMistake {
  std::string name, before, after;
  Verdict verdict;
  std::string log;  // how the reason begins
};
inline const std::vector<SizeMistake> kSizeMistakes = {
    {"none", "", "", Verdict::kOk, ""},
    {"right at the measured size only", "if (s0 == 24)", "", Verdict::kWrongResult, "at sizes 1:"},
    {"wrong above the measured size", "if (s0 < 26)", "", Verdict::kWrongResult, "at sizes 51:"},
    {"past the end at odd sizes", "", "if (last && s0 % 8) out[s0 * 8] = 1;", Verdict::kOutOfBounds,
     "at sizes "},
};

// The rows a case is made at, first its own and then the others'.
template <typename Case>
std::vector<int64_t> rows_of(const std::vector<Case>& cases) {
  std::vector<int64_t> rows;
  for (const Case& one : cases) rows.push_back(one.symbols()[0]);
  return rows;
}

}  // namespace kiln::test
