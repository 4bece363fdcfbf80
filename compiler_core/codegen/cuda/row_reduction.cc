#include "compiler_core/codegen/cuda/row_reduction.h"

namespace kiln {

Result<Source> lower_cuda_row_reduction(const Graph&, const CudaRowReductionSchedule&,
                                        const Target&) {
  return fail(Code::kUnsupported, "not written yet");
}

}  // namespace kiln
