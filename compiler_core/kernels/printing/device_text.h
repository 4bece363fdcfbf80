// The device code that kernels are printed with, and what of it a kernel needs. Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace kiln {

// The text of kernels/*/device/<name>, which embed.cmake puts into the binary at build time; empty
// when there is none.
std::string_view device_text(std::string_view name);

// `source` without the functions and types of printing/device/*.cuh whose names occur nowhere
// further down in what is kept; a use stands below its definition, so one pass from the end decides
// everything. NVRTC takes longer to read all of them than to compile a small kernel. What can go is
// an item that begins at the left edge of a line: a KILN_INLINE or KILN_OUTLINE function, a struct,
// a template of one; a specialisation, a KILN_LANEWISE or a KILN_MEMORY line when its type is not
// used either. Everything else stays.
std::string needed_text(std::string_view source);

}  // namespace kiln
