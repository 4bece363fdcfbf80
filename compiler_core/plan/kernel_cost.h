// KernelCost: the bytes a kernel has to move and the operations it has to compute, whatever code is
// generated for it; its roofline bound follows from them.
#pragma once

#include <cstdint>
#include <span>

#include "compiler_core/plan/partition.h"

namespace kiln {

struct KernelCost {
  int64_t bytes = 0;  // each element it needs read once, each it stores written once
  // contraction_flops, and one for each element of arithmetic and of a reduction; of attention, for the scores
  // that its mask of places shows
  int64_t flops = 0;
  int64_t contraction_flops = 0;   // of matmuls and convolutions: a multiplication and an addition
  DType contracted = DType::kF32;  // the operands' dtype, where there are any
  bool operator==(const KernelCost&) const = default;
};

// `sizes`: the values of the graph's symbols. A table that is only gathered from counts with the
// rows that are picked. kInvalidArgument when a size is unbound or overflows.
Result<KernelCost> kernel_cost(const Partition& partition, const FusedKernel& kernel,
                               std::span<const int64_t> sizes);
// The cost of a whole workload, in the sizes of its own symbols.
Result<KernelCost> workload_cost(const Workload& workload, std::span<const int64_t> sizes);

}  // namespace kiln
