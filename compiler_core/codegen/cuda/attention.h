// Attention kernels for CUDA; see templates/cuda/attention.cuh. An infinity among query, key or
// value in f32 gives NaN: there they are multiplied in two parts.
#pragma once

#include "compiler_core/codegen/lower.h"
#include "compiler_core/tune/cuda/space_attention.h"

namespace kiln {

// REQUIRES: check_printable(graph), the guarantees of kAttention.
Result<Source> lower_cuda_attention(const Graph& graph, const CudaAttentionSchedule& schedule);

}  // namespace kiln
