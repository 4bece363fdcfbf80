// A target device's limits, which bound schedules: what an SM offers a block and how many SMs there
// are (CUDA C++ Programming Guide, "Compute Capabilities"), how wide a CPU's vectors are. Pure
// functions.
#pragma once

#include <vector>

#include "compiler_core/ir/graph.h"
#include "compiler_core/program/target.h"

namespace kiln {

struct CudaLimits {
  int sms = 0;  // of the target's device; of the usual one (A100, H100) when unknown
  int max_block_threads = 1024;
  int sm_threads = 2048;       // resident
  int sm_registers = 65536;    // 32 bits each
  int block_shared_bytes = 0;  // dynamic, opted in
  int sm_shared_bytes = 0;     // all resident blocks
  int max_cluster = 1;         // blocks; portable size
};
// 90 for "sm_90a"; 0 for what is not a CUDA target.
int sm_number(const Target& target);
// REQUIRES: sm_number(target) >= 80.
CudaLimits cuda_limits(const Target& target);

// Bytes of a CPU target's vector registers: 32 or 64; 0 when the target is not one we write for.
int vector_bytes(const Target& target);

// Lanes a vector, best guess first: as many as fill a register with the widest type that the graph
// computes in, then the other counts that are worth a try.
std::vector<int> lane_choices(const Graph& graph, const Target& target);

}  // namespace kiln
