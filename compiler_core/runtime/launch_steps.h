// Steps: a program's launches in their order, where neighbours that touch nothing of each other's
// results are one step: they may run side by side, in any order, without a barrier between them.
// Follows from the buffers and the sizes of a call; no manifest says it. Private to this folder.
#pragma once

#include <vector>

#include "compiler_core/program/program.h"
#include "compiler_core/runtime/call_sizes.h"

namespace kiln {

using LaunchStep = std::vector<size_t>;  // launches, ascending

// Launches that write nothing are in no step. A launch of several phases, of one block (no other
// core is woken for it), or one that needs the workspace, is a step of its own; no step has more
// than `most`. An input and an output may be one memory: what reads the one and
// what writes the other stay apart.
std::vector<LaunchStep> steps_of(const Program& program, const CallSizes& sizes, size_t most);

}  // namespace kiln
