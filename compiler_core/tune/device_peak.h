// DevicePeak: how fast a target can move and compute at best, as far as it is known, and where the
// figures come from. Shown to people who ask how far a kernel is from its roofline bound; no
// schedule depends on it.
#pragma once

#include <string>

#include "compiler_core/base/dtype.h"
#include "compiler_core/plan/kernel_cost.h"
#include "compiler_core/program/target.h"

namespace kiln {

struct DevicePeak {
  double gb_per_s = 0;     // memory, bytes read plus written
  double gflop_per_s = 0;  // elementwise and reductions, f32
  double f32_matmul_gflop_per_s = 0;
  double half_matmul_gflop_per_s = 0;
  std::string source;  // "NVIDIA H200: measured copy; dense bf16 as cuBLASLt reaches"

  // The roofline bound: the least time, with memory and arithmetic overlapping perfectly.
  double floor_us(const KernelCost& cost) const;
};

// The peak of a GPU by its model, else of the model that its ISA is known from; zeros when neither
// is known.
DevicePeak cuda_peak(const Target& target);
// The peak of a CPU: arithmetic from its cores, its clock and its vectors (two fused multiply-adds
// a cycle), memory as measured by the caller.
DevicePeak cpu_peak(const Target& target, double clock_ghz, double measured_gb_per_s);

// Half of the least time that any device of `target` needs for a kernel of `workload`, in
// microseconds: what it stores, at what a core or a GPU's second-level cache can take. A worker that
// reports less has not run it. 0 where nothing is known, or for sizes that are symbols.
double impossible_us(const Workload& workload, const Target& target);

}  // namespace kiln
