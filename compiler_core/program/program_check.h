// What the parts of a program that was read say of each other: without this, a damaged manifest
// could make a launch write outside its buffers. Private to this folder. Pure functions.
#pragma once

#include <string_view>

#include "compiler_core/program/program.h"

namespace kiln {

tl::unexpected<Error> damaged(std::string_view why);  // kCorruption

// kCorruption unless buffers lie inside the arena, launches fit what they are given, inputs are not
// written and every symbol is bound; sizes with symbols at sample_sizes(). REQUIRES: indices are in
// range.
Status check_program(const Program& program);

}  // namespace kiln
