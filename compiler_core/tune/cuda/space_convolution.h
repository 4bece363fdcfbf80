// Convolutions with an elementwise epilogue on CUDA: their schedules are those of the matmul that
// each image and group is. Values.
#pragma once

#include <vector>

#include "compiler_core/tune/convolution_problem.h"
#include "compiler_core/tune/cuda/space_matmul.h"

namespace kiln {

// kInvalidArgument for another family's schedule, or a value that no kernel can be written for.
Result<CudaMatmulSchedule> cuda_convolution_schedule(const Schedule& schedule);

// REQUIRES: workload.family is kConvolution, its sizes are constants.
std::vector<Schedule> cuda_convolution_space(const Workload& workload, const Target& target);

}  // namespace kiln
