// Places temporaries in one arena: first fit over the time in which each is needed, in the best of
// several orders; where there are thousands, one launch after the other.
#pragma once

#include <cstdint>
#include <vector>

namespace kiln {

inline constexpr int64_t kBufferAlignment = 64;

struct Lifetime {
  int64_t bytes = 0;
  int first = 0;  // the launch that writes it
  int last = 0;   // the last launch that reads it
};

struct ArenaPlan {
  std::vector<int64_t> offsets;  // one per lifetime, multiples of kBufferAlignment
  int64_t bytes = 0;
};

// Buffers whose lifetimes overlap in time never overlap in memory. A launch's inputs and outputs
// overlap in time.
ArenaPlan plan_arena(const std::vector<Lifetime>& lifetimes);

// A lower bound for any arena: the most bytes that are alive together at one launch, each buffer
// rounded up to kBufferAlignment.
int64_t most_live_bytes(const std::vector<Lifetime>& lifetimes);

}  // namespace kiln
