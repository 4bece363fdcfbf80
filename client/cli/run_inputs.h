// The tensors a program runs on: user inputs from a safetensors file (in0, in1, ...) or made up,
// and weights from the archive.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler_core/base/file.h"
#include "compiler_core/frontend/exported_program.h"

namespace kiln::cli {

struct RunInputs {
  std::vector<Tensor> tensors;  // one per graph input, in the layout the graph expects
  int made_up = 0;              // how many were not given and are seeded random values instead
};

// kInvalidArgument when a given tensor does not fit the program or a name is missing. With
// `allow_made_up` false, weights that a graph-only archive lacks are an error too. `seed` is what a
// random program gets.
Result<RunInputs> gather_inputs(const Path& archive, const ExportedProgram& program,
                                const std::map<std::string, Tensor>* given, bool allow_made_up,
                                int64_t seed);

}  // namespace kiln::cli
