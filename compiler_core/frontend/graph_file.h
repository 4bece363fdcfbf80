// Reads either file format people have: a `.pt2` archive, or Kiln's text form (by content, not by
// name).
#pragma once

#include "compiler_core/frontend/exported_program.h"

namespace kiln {

Result<ExportedProgram> read_graph_file(const std::filesystem::path& path);

}  // namespace kiln
