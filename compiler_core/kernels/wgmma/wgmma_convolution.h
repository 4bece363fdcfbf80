// Convolutions of fp16 and bf16 images on the tensor cores of compute capability 9.0 (wgmma), with an
// elementwise epilogue. Where results are stored channels last, all images are one product whose
// first operand's lines are windows, gathered from where they lie; else each image is one, of weights
// and windows. Before it a launch lays out images and weights with their channels side by side, where
// they do not lie so.
#pragma once

#include <vector>

#include "compiler_core/kernels/convolution/convolution_problem.h"
#include "compiler_core/kernels/wgmma/wgmma_matmul.h"

namespace kiln {

// The decisions of the product: weights times windows.
struct WgmmaConvolutionSchedule : WgmmaMatmulSchedule {
  static constexpr std::string_view kTemplate = "cuda.convolution.wgmma";
};

// kUnsupported: what is left to other kernels. REQUIRES: workload.family is kConvolution.
Status check_wgmma_convolution(const Workload& workload);

// REQUIRES: check_wgmma_convolution(workload).
std::vector<Schedule> wgmma_convolution_candidates(const Workload& workload, const Target& target);

// REQUIRES: check_wgmma_convolution() of its workload. kInvalidArgument when
// the schedule does not fit.
Result<Source> print_wgmma_convolution(const Graph& graph, const WgmmaConvolutionSchedule& schedule,
                                       const Target& target);

// "cuda.convolution.wgmma".
const KernelTemplate& wgmma_convolution();

}  // namespace kiln
