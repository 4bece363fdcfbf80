// The oracle on a GPU: ir/interpreter.h's evaluation, node by node with the kernels of
// utility/reference.cuh, for workloads whose elements are too many for a CPU. Slow,
// obvious, deterministic; shares nothing with the code generator.
#pragma once

#include <span>

#include "compiler_core/ir/graph.h"
#include "compiler_core/ir/interpreter.h"
#include "worker/runner/cuda/utility_kernels.h"

namespace kiln::runner {

// Puts the evaluation of `graph` on the stream of the utility kernels; does not wait for it. `inputs` and
// `outputs` are dense tensors of the graph's dtypes in device memory, at the sizes that `symbols`
// give. Values as interpret() would have them, but for the order of sums and the last bits of
// elementary functions. kUnavailable: no memory for the nodes in between, or the device is lost.
Status evaluate_on_device(UtilityKernels& utility, const Graph& graph,
                          std::span<const int64_t> symbols, Precision precision,
                          std::span<const DevicePtr> inputs, std::span<const DevicePtr> outputs);

}  // namespace kiln::runner
