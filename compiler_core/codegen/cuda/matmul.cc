#include "compiler_core/codegen/cuda/matmul.h"

namespace kiln {

Result<Source> lower_cuda_matmul(const Graph&, const CudaMatmulSchedule&) {
  return fail(Code::kUnsupported, "not written yet");
}

}  // namespace kiln
