// SmallProgram: the n-th of endlessly many programs that are quick to tune, whose right answer is
// known: out = x * (n + 2) + x, over 1,000 numbers; every third one also sums a matrix along each
// axis, and so has two kernels.
#pragma once

#include <vector>

#include "compiler_core/base/file.h"

namespace kiln::testing {

struct SmallProgram {
  int number = 0;
  Path graph;   // Kiln's text form
  Path answer;  // safetensors: in0 and what comes out
  std::vector<float> x;
  std::vector<std::vector<float>> out;
};

// Writes the files of it into `directory`, unless they are there.
SmallProgram small_program(const Path& directory, int number);

}  // namespace kiln::testing
