// The sizes to tune at, as --hint gives them: "s0=1,32,512" for a symbol of the graph, or
// "x.0=1,32" for axis 0 of the input that the model calls x.
#pragma once

#include <string>
#include <vector>

#include "compiler_core/frontend/exported_program.h"

namespace kiln::cli {

// By symbol of the graph. kInvalidArgument: no such form, symbol, input or axis, or an axis whose
// size is fixed.
Result<std::vector<std::vector<int64_t>>> parse_hints(const std::vector<std::string>& texts,
                                                      const ExportedProgram& program);

}  // namespace kiln::cli
