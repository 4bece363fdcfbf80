// What every loaded program needs to know of its manifest, whatever its target: whether it is
// sound, how much memory it takes, and where each of its buffers lies in a launch. Free functions,
// pure. Private to this folder.
#pragma once

#include <span>
#include <vector>

#include "compiler_core/program/program.h"

namespace kiln {

// kInvalidArgument: not one artifact a kernel. kCorruption: an artifact is not its kernel's, or a
// launch's buffers are not what its kernel reads and writes.
Status check_program(const Program& program, std::span<const Artifact> artifacts);

// kInvalidArgument unless a caller gives this many inputs and outputs.
Status check_counts(const Program& program, size_t inputs, size_t outputs);

// The most that one call needs, for given symbols. kInvalidArgument for a symbol without value, or
// a size below zero.
struct MemoryNeed {
  int64_t arena_bytes = 0;
  int64_t workspace_bytes = 0;  // of the kernel that needs most: launches follow each other
};
Result<MemoryNeed> memory_need(const Program& program, std::span<const int64_t> dims);
// Whether it is the same for all symbols.
bool has_constant_memory_need(const Program& program);

Result<int64_t> byte_size(const TensorSpec& spec, std::span<const int64_t> dims);

inline void* address_at(void* base, int64_t offset) {
  return static_cast<char*>(base) + offset;
}
inline uint64_t address_at(uint64_t base, int64_t offset) {
  return base + static_cast<uint64_t>(offset);
}

// The address of each of the program's buffers, in order; void* on the CPU, a DevicePtr on a GPU.
// REQUIRES: check_counts().
template <class Address>
Status place_buffers(const Program& program, std::span<const Address> inputs,
                     std::span<const Address> outputs, Address arena, std::span<const int64_t> dims,
                     std::vector<Address>& placed) {
  placed.clear();
  for (const Buffer& buffer : program.buffers) {
    const size_t index = static_cast<size_t>(buffer.index);
    switch (buffer.kind) {
      case Buffer::Kind::kInput:
        placed.push_back(inputs[index]);
        break;
      case Buffer::Kind::kOutput:
        placed.push_back(outputs[index]);
        break;
      case Buffer::Kind::kTemporary: {
        TRY(const int64_t offset, buffer.arena_offset.evaluate(dims));
        placed.push_back(address_at(arena, offset));
        break;
      }
    }
  }
  return {};
}

}  // namespace kiln
