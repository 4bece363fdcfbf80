// Compiles a workload under a schedule, runs it between guard pages and compares with the
// interpreter: for the CPU with the real compiler on the thread pool, for CUDA on the fake GPU
// (tests/support/fake_cuda). For the tests of every kernel family.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "compiler_core/base/tensor.h"
#include "compiler_core/ir/builder.h"
#include "compiler_core/kernels/registry.h"

namespace kiln::testing {

// Random inputs of the graph's declared sizes: floats in [-2, 2], integers in [-9, 9].
std::vector<Tensor> random_inputs(const Graph& graph, std::mt19937& random);

// The outputs of the compiled kernel. Buffers stand between pages that can't be touched, so an
// access far outside ends the test; what lies between buffer and page is checked for writes.
Result<std::vector<Tensor>> run_source(const Source& source, const Target& target,
                                       std::span<const Tensor> inputs);

// "" when the outputs agree with the interpreter in high precision, within what their dtypes
// allow; else the first element that does not, with both values. NaN agrees with NaN.
std::string disagreement(const Graph& graph, std::span<const Tensor> inputs,
                         std::span<const Tensor> outputs);

// Lowers, compiles, runs and compares; "" or what went wrong, with the schedule's text.
std::string check_schedule(const Workload& workload, const Schedule& schedule, const Target& target,
                           std::span<const Tensor> inputs);
// The same with random inputs of this seed; what went wrong ends with the workload's graph.
std::string check_with_random_inputs(const Workload& workload, const Schedule& schedule,
                                     const Target& target, unsigned seed = 12);
// check_schedule() for up to `limit` schedules of the search space, spread over it (the first always).
std::string check_space(const Workload& workload, const Target& target,
                        std::span<const Tensor> inputs, int limit);

// The same of a workload with symbols: compiled once, run with the symbols at each of `sizes`.
std::string check_sizes(const Workload& workload, const Schedule& schedule, const Target& target,
                        const std::vector<std::vector<int64_t>>& sizes);

// exp(x - greatest) over its sum along an axis.
NodeId softmax(GraphBuilder& b, NodeId x, int axis);

// The targets of this machine: x86-64-v4 where it has it, and x86-64-v3.
std::vector<Target> targets();
// GPUs of compute capabilities 9.0 and 8.0, of no particular size; and an H100.
inline const Target kHopper = *Target::parse("cuda:sm_90a");
inline const Target kAmpere = *Target::parse("cuda:sm_80");
Target hopper();
// This machine's own, and one that the fake GPU runs; `own_and_cuda`: only the first of this machine's.
std::vector<Target> all_targets();
std::vector<Target> own_and_cuda();

}  // namespace kiln::testing
