// Convolutions of fp16 and bf16 images on the tensor cores of compute capability 9.0 (wgmma), with an
// elementwise epilogue. Where results are stored channels last, all images are one product whose
// first operand's lines are windows, read from where they lie by the copy engine (im2col) or gathered
// by threads; else each image is one, of weights and windows. Before it a launch lays out images and
// weights with their channels side by side, where they do not lie so.
#pragma once

#include <vector>

#include "compiler_core/kernels/convolution/convolution_problem.h"
#include "compiler_core/kernels/wgmma/wgmma_matmul.h"

namespace kiln {

// The decisions of the product: weights times windows.
struct WgmmaConvolutionSchedule : WgmmaMatmulSchedule {
  static constexpr std::string_view kTemplate = "cuda.convolution.wgmma";

  int im2col = 0;  // the copy engine brings windows; else threads do
  int shared = 0;  // blocks share tiles (stream-K): each has the same number of steps

  static void fields(auto& f, auto& s) {
    tile_fields(f, s);
    f("im2col", s.im2col, between(0, 1));
    f("shared", s.shared, between(0, 1));
  }
  // More than 96 sums a thread and what it adds to them do not fit its registers.
  bool go_together() const {
    return WgmmaMatmulSchedule::go_together() && shared <= im2col &&
           (shared == 0 || (ping_pong == 0 && registers(false) <= 96));
  }
};

// kUnsupported: what is left to other kernels. REQUIRES: workload.family is kConvolution.
Status check_wgmma_convolution(const Workload& workload);

// Whether the schedule's tiles fit the problem and, where it says so, the copy engine its windows.
bool fits_convolution(const WgmmaConvolutionSchedule& schedule, const Graph& graph);

// REQUIRES: check_wgmma_convolution(workload).
std::vector<Schedule> wgmma_convolution_candidates(const Workload& workload, const Target& target);

// REQUIRES: check_wgmma_convolution() of its workload. kInvalidArgument when
// the schedule does not fit.
Result<Source> print_wgmma_convolution(const Graph& graph, const WgmmaConvolutionSchedule& schedule,
                                       const Target& target);

// "cuda.convolution.wgmma".
const KernelTemplate& wgmma_convolution();

}  // namespace kiln
