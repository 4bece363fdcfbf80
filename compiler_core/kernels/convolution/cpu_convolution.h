// The schedules of convolution kernels. Values.
#pragma once

#include <vector>

#include "compiler_core/kernels/convolution/convolution_problem.h"
#include "compiler_core/kernels/decisions.h"
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
  static constexpr std::string_view kTemplate = "cpu.convolution";

  int lanes = 8;        // elements a vector
  bool slide = false;   // vectors of x as they lie, for whole rows; else windows in panels
  int mr = 4, nr = 16;  // register tile: results of a position, positions
  int64_t kc = 256;     // depth kept in the first cache at a time; only of panels
  int64_t mc = 96;      // a block of the grid: results of a position, positions
  int64_t nc = 256;
  bool a_packed = true;  // weights in panels; else as they lie
  XFrom x_from = XFrom::kField;

  static void fields(auto& f, auto& s) {
    f("lanes", s.lanes, kVectorLanes);
    f("slide", s.slide);
    f("mr", s.mr, between(1, 32));
    f("nr", s.nr, between(1, 512));
    f("kc", s.kc, kBlockSizes);
    f("mc", s.mc, kBlockSizes);
    f("nc", s.nc, kBlockSizes);
    f("a_packed", s.a_packed);
    f("x_from", s.x_from, between(0, 2));
  }
  bool go_together() const {
    return nr <= 32 * lanes && nr % lanes == 0 && mr * (nr / lanes) <= 64;
  }
};

// Whether `schedule` can be written for `problem`.
bool fits(const CpuConvolutionSchedule& schedule, const ConvolutionProblem& problem);

// REQUIRES: workload.family is kConvolution, its sizes are constants.
std::vector<Schedule> cpu_convolution_candidates(const Workload& workload, const Target& target);

// REQUIRES: the guarantees of kConvolution. kInvalidArgument when the
// schedule does not fit the problem.
Result<Source> print_cpu_convolution(const Graph& graph, const CpuConvolutionSchedule& schedule);

// "cpu.convolution".
const KernelTemplate& cpu_convolution();

}  // namespace kiln
