// What every loaded program needs to know of its manifest, whatever its target: whether it is sound
// and fits the call. Free functions, pure. Private to this folder.
#pragma once

#include <span>

#include "compiler_core/program/program.h"

namespace kiln {

// kInvalidArgument: not one artifact a kernel. kCorruption: an artifact is not its kernel's, or a
// launch's buffers are not what its kernel reads and writes.
Status check_program(const Program& program, std::span<const Artifact> artifacts);

// kInvalidArgument unless a caller gives this many inputs and outputs.
Status check_counts(const Program& program, size_t inputs, size_t outputs);

}  // namespace kiln
