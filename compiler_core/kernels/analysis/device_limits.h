// A CUDA target's limits, which bound schedules: what an SM offers a block, how many SMs there are.
// Figures: CUDA C++ Programming Guide, "Compute Capabilities". Pure functions.
#pragma once

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

}  // namespace kiln
