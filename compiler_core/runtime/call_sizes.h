// CallSizes: what follows from a program and the sizes of one call: memory, offsets, each launch's
// arguments, and which launches are one step; with the checks that the program is sound and fits
// the caller's buffers. Computed anew only when the sizes change. Free functions, pure. Private to
// this folder.
#pragma once

#include <span>
#include <vector>

#include "compiler_core/program/program.h"
#include "compiler_core/runtime/device.h"

namespace kiln {

// kInvalidArgument: not one artifact a kernel. kCorruption: an artifact is not its kernel's, or a
// launch's buffers are not what its kernel reads and writes.
Status check_program(const Program& program, std::span<const Artifact> artifacts);
// kInvalidArgument unless a caller gives this many inputs and outputs.
Status check_counts(const Program& program, size_t inputs, size_t outputs);

struct CallSizes {
  std::vector<int64_t> symbols;  // what all of this is for

  int64_t arena_bytes = 0;
  int64_t workspace_bytes = 0;   // of the launch that needs most: launches follow each other
  std::vector<int64_t> bytes;    // by buffer
  std::vector<int64_t> offsets;  // into the arena, by buffer; 0 unless a temporary

  struct OfLaunch {
    std::vector<int64_t> dims;  // the kernel's symbols
    bool empty = false;         // writes no element: left out
  };
  std::vector<OfLaunch> launches;  // by launch
};

// kInvalidArgument: not one value a symbol, one outside its range, a guard that does not hold, or
// something that overflows.
Result<CallSizes> sizes_of_call(const Program& program, std::span<const int64_t> symbols);

// The blocks of a phase. REQUIRES: `dims` binds every symbol of its recipe.
int64_t blocks_of(const Phase& phase, std::span<const int64_t> dims);

// The address of each of the program's buffers, in order. REQUIRES: check_counts().
void place_buffers(const Program& program, std::span<const DevicePtr> inputs,
                   std::span<const DevicePtr> outputs, DevicePtr arena, const CallSizes& sizes,
                   std::vector<DevicePtr>& placed);

// A program's launches in their order, where neighbours that touch nothing of each other's results
// are one step: they may run side by side, in any order, without a barrier between them. Launches
// that write nothing are in no step. A launch of several phases, of one block (no other core is
// woken for it), or one that needs the workspace, is a step of its own; no step has more than
// `most`. An input and an output may be one memory: what reads the one and what writes the other
// stay apart.
using LaunchStep = std::vector<size_t>;  // launches, ascending
std::vector<LaunchStep> steps_of(const Program& program, const CallSizes& sizes, size_t most);

}  // namespace kiln
