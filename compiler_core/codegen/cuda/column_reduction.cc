#include "compiler_core/codegen/cuda/column_reduction.h"

namespace kiln {

Result<Source> lower_cuda_column_reduction(const Graph&, const CudaColumnReductionSchedule&) {
  return fail(Code::kUnsupported, "not written yet");
}

}  // namespace kiln
