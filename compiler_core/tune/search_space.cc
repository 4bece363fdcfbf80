#include "compiler_core/tune/search_space.h"

#include "compiler_core/tune/cpu/space_attention.h"
#include "compiler_core/tune/cpu/space_column_reduction.h"
#include "compiler_core/tune/cpu/space_convolution.h"
#include "compiler_core/tune/cpu/space_matmul.h"
#include "compiler_core/tune/cpu/space_pointwise.h"
#include "compiler_core/tune/cpu/space_row_reduction.h"
#include "compiler_core/tune/cpu/space_scan.h"
#include "compiler_core/tune/cpu/space_scatter.h"
#include "compiler_core/tune/cpu/space_sort.h"
#include "compiler_core/tune/cpu/vector_width.h"
#include "compiler_core/tune/cuda/device_limits.h"
#include "compiler_core/tune/cuda/space_attention.h"
#include "compiler_core/tune/cuda/space_column_reduction.h"
#include "compiler_core/tune/cuda/space_convolution.h"
#include "compiler_core/tune/cuda/space_matmul.h"
#include "compiler_core/tune/cuda/space_pointwise.h"
#include "compiler_core/tune/cuda/space_row_reduction.h"
#include "compiler_core/tune/cuda/space_scan.h"
#include "compiler_core/tune/cuda/space_scatter.h"
#include "compiler_core/tune/cuda/space_sort.h"
#include "compiler_core/tune/custom_space.h"
#include "compiler_core/tune/symbolic_space.h"

namespace kiln {

Result<std::vector<Schedule>> search_space(const Workload& workload, const Target& target) {
  const bool cuda = sm_number(target) >= 80;
  if (!cuda && vector_bytes(target) == 0)
    return fail(Code::kUnsupported, "no kernels are written for " + target.to_string() +
                                        " (for cpu:x86-64-v3 and cuda:sm_80 and up they are)");
  if (!workload.graph.symbols().empty() && workload.family != Family::kCustom) {
    TRY(const Workload sized, sized_workload(workload, measured_sizes(workload.graph.symbols())));
    TRY(const std::vector<Schedule> chosen, search_space(sized, target));
    return symbolic_space(workload, target, chosen);
  }
  switch (workload.family) {
    case Family::kPointwise:
      return cuda ? cuda_pointwise_space(workload, target) : pointwise_space(workload, target);
    case Family::kMatmul:
      return cuda ? cuda_matmul_space(workload, target) : matmul_space(workload, target);
    case Family::kRowReduction:
      return cuda ? cuda_row_reduction_space(workload, target)
                  : row_reduction_space(workload, target);
    case Family::kColumnReduction:
      return cuda ? cuda_column_reduction_space(workload, target)
                  : column_reduction_space(workload, target);
    case Family::kScan:
      return cuda ? cuda_scan_space(workload, target) : scan_space(workload, target);
    case Family::kSort:
      return cuda ? cuda_sort_space(workload, target) : sort_space(workload, target);
    case Family::kScatter:
      return cuda ? cuda_scatter_space(workload, target) : scatter_space(workload, target);
    case Family::kConvolution:
      return cuda ? cuda_convolution_space(workload, target) : convolution_space(workload, target);
    case Family::kCustom:
      return custom_space(workload, target);
    case Family::kAttention:
      return cuda ? cuda_attention_space(workload, target) : attention_space(workload, target);
  }
  return fail(Code::kUnsupported, "no kernels are written for the family " +
                                      std::string(to_string(workload.family)) + " yet");
}

}  // namespace kiln
