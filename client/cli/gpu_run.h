// One program run on the GPU for its answer and its time: tensors are copied there once, launches
// are timed by the device's own clock.
#pragma once

#include <chrono>
#include <vector>

#include "client/client.h"

namespace kiln::cli {

struct GpuRun {
  std::vector<Tensor> outputs;  // of the first launch
  double upload_ms = 0;         // device memory, and the inputs copied into it
  double first_launch_ms = 0;   // from the call until the device was done
  std::chrono::steady_clock::time_point first_finished;
  double median_us = 0;  // of the later launches
};

// `inputs`: in the graph's order. `runs`: how many are timed; 0: what fits a fifth of a second.
// kInternal when the program faults, with the driver's message; kOverloaded when the GPU has no
// memory for the tensors. REQUIRES: the program is loaded on a GPU.
Result<GpuRun> run_on_gpu(const CompiledProgram& program, std::span<const Tensor* const> inputs,
                          int runs);

}  // namespace kiln::cli
