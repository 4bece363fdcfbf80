// The differences between two programs, in the terms of the people who wrote them.
#pragma once

#include <string>
#include <vector>

#include "compiler_core/base/digest.h"
#include "compiler_core/frontend/exported_program.h"

namespace kiln::cli {

struct Difference {
  std::string kind;           // "operator", "constant", "input", "output", "range", "wiring"
  std::string where;          // "aten.add.Tensor at model.py:42 in forward, module layers.0"
  std::string first, second;  // what each has there; empty: nothing
};

struct ProgramDifference {
  Digest first, second;                 // GraphDigests
  std::vector<Difference> differences;  // empty when the digests agree
  bool same() const { return first == second; }
};

// Errors of normalise.
Result<ProgramDifference> find_differences(const ExportedProgram& first,
                                           const ExportedProgram& second);

}  // namespace kiln::cli
