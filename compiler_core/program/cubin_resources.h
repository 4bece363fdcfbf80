// CubinResources: what a GPU kernel takes of a multiprocessor, read from its binary. How many blocks
// run at once follows from it, and whether the compiler ran out of registers. A value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "compiler_core/program/artifact.h"

namespace kiln {

// With several kernels in one binary, the largest of each.
struct CubinResources {
  int64_t registers = 0;  // of a thread
  // A thread's spilled registers, and its arrays whose index is not constant.
  int64_t local_bytes = 0;
  // A block's static and dynamic shared memory; from sm_90 on with the driver's 1 KiB.
  int64_t shared_bytes = 0;
  bool operator==(const CubinResources&) const = default;
};

// As `ptxas -v` counts them. nullopt: the binary is no cubin, or damaged; safe on hostile bytes.
std::optional<CubinResources> resources_of(std::string_view binary, const Recipe& recipe);

// "32 registers, 1456 bytes of local memory, 2048 bytes of shared memory". Persisted as a tuning
// record's log; never changes its meaning.
std::string to_string(const CubinResources& resources);
std::optional<CubinResources> parse_cubin_resources(std::string_view text);

}  // namespace kiln
