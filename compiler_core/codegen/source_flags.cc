// Beside lower.cc: the compilers need the flags, and nothing of what writes the sources.
#include <array>

#include "compiler_core/codegen/lower.h"

namespace kiln {

std::span<const std::string_view> source_flags() {
  // GCC 12's superword vectoriser miscompiles selections between lanes (x / x gave -1); vectors are
  // written out here, so nothing is lost without it.
  static constexpr std::array<std::string_view, 10> kFlags = {"-std=gnu++17",
                                                              "-O3",
                                                              "-fno-tree-slp-vectorize",
                                                              "-ffp-contract=fast",
                                                              "-fno-math-errno",
                                                              "-fno-trapping-math",
                                                              "-fwrapv",
                                                              "-fno-strict-aliasing",
                                                              "-fno-exceptions",
                                                              "-Wno-psabi"};
  return kFlags;
}

}  // namespace kiln
