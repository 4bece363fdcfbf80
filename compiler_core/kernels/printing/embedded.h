// The device code that embed.cmake puts into the binary at build time. Constant; freely shared.
#pragma once

#include <string_view>

namespace kiln {

// The text of kernels/*/device/<name>; empty when there is none.
std::string_view device_text(std::string_view name);

}  // namespace kiln
