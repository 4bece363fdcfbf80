// What embed.cmake puts into the binary at build time. Constant; freely shared.
#pragma once

#include <string_view>

namespace kiln {

// The text of templates/<name>; empty when there is none.
std::string_view template_text(std::string_view name);

// SHA-256, in hex, over every template and source file of plan, tune and codegen.
std::string_view generator_hash();

}  // namespace kiln
