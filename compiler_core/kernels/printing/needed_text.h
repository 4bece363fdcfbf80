// NeededText: leaves out of a CUDA source what its kernels do not use of the vocabulary: NVRTC
// takes longer to read all of it than to compile a small kernel. Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace kiln {

// `source` without the functions and types of printing/device/*.cuh whose names occur nowhere
// further down in what is kept; a use stands below its definition, so one pass from the end decides
// everything. What can go is an item that begins at the left edge of a line: a KILN_INLINE or
// KILN_OUTLINE function, a struct, a template of one; a specialisation, a KILN_LANEWISE or a
// KILN_MEMORY line when its type is not used either. Everything else stays.
std::string needed_text(std::string_view source);

}  // namespace kiln
