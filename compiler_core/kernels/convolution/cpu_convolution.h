// The schedules of convolution kernels. Values.
#pragma once

#include <vector>

#include "compiler_core/kernels/convolution/convolution_problem.h"
#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

// Where windows are read from. Persisted as numbers.
enum class XFrom : uint8_t {
  kInPlace = 0,  // x itself: no window reaches beyond it
  kField = 1,    // a copy with its zeros, of all of x, made first
  kBlock = 2,    // such a copy of the channels that a block reads, made by the block
};

struct CpuConvolutionSchedule {
  int lanes = 16;       // elements a vector
  bool slide = false;   // vectors of x as they lie, for whole rows; else windows in panels
  int mr = 8, nr = 32;  // register tile: results of a position, positions
  int64_t kc = 256;     // depth kept in the first cache at a time; only of panels
  int64_t mc = 96;      // a block of the grid: results of a position, positions
  int64_t nc = 256;
  bool a_packed = true;  // weights in panels; else as they lie
  XFrom x_from = XFrom::kField;

  // kInvalidArgument for another family's schedule, or a value that no kernel can be written for.
  static Result<CpuConvolutionSchedule> from(const Schedule& schedule);
  Schedule to_schedule() const;
};

// Whether `schedule` can be written for `problem`.
bool fits(const CpuConvolutionSchedule& schedule, const ConvolutionProblem& problem);

// REQUIRES: workload.family is kConvolution, its sizes are constants.
std::vector<Schedule> cpu_convolution_candidates(const Workload& workload, const Target& target);

// REQUIRES: check_printable(graph), the guarantees of kConvolution. kInvalidArgument when the
// schedule does not fit the problem.
Result<Source> print_cpu_convolution(const Graph& graph, const CpuConvolutionSchedule& schedule);

// "cpu.convolution".
const KernelTemplate& cpu_convolution();

}  // namespace kiln
