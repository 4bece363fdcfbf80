// CallSizes: everything about a program that follows from the sizes of one call: memory, offsets,
// what each launch is told. Worked out anew only when the sizes change. Private to this folder.
#pragma once

#include <span>
#include <vector>

#include "compiler_core/program/program.h"
#include "compiler_core/runtime/device.h"

namespace kiln {

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

// The address of each of the program's buffers, in order. REQUIRES: check_counts() of
// program_layout.h.
void place_buffers(const Program& program, std::span<const DevicePtr> inputs,
                   std::span<const DevicePtr> outputs, DevicePtr arena, const CallSizes& sizes,
                   std::vector<DevicePtr>& placed);

}  // namespace kiln
