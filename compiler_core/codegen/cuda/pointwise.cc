#include "compiler_core/codegen/cuda/pointwise.h"

namespace kiln {

Result<Source> lower_cuda_pointwise(const Graph&, const CudaPointwiseSchedule&) {
  return fail(Code::kUnsupported, "not written yet");
}

}  // namespace kiln
