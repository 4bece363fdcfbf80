// CallSizes: everything about a program that follows from the sizes of one call: memory, offsets,
// what each launch is told. Worked out anew only when the sizes change. Private to this folder.
#pragma once

#include <span>
#include <vector>

#include "compiler_core/program/program.h"

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

inline void* address_at(void* base, int64_t offset) {
  return static_cast<char*>(base) + offset;
}
inline uint64_t address_at(uint64_t base, int64_t offset) {
  return base + static_cast<uint64_t>(offset);
}

// The address of each of the program's buffers, in order; void* on the CPU, a DevicePtr on a GPU.
// REQUIRES: check_counts() of program_layout.h.
template <class Address>
void place_buffers(const Program& program, std::span<const Address> inputs,
                   std::span<const Address> outputs, Address arena, const CallSizes& sizes,
                   std::vector<Address>& placed) {
  placed.clear();
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    const size_t index = static_cast<size_t>(buffer.index);
    switch (buffer.kind) {
      case Buffer::Kind::kInput:
        placed.push_back(inputs[index]);
        break;
      case Buffer::Kind::kOutput:
        placed.push_back(outputs[index]);
        break;
      case Buffer::Kind::kTemporary:
        placed.push_back(address_at(arena, sizes.offsets[i]));
        break;
    }
  }
}

}  // namespace kiln
