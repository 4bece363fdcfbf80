// Products on the tensor cores of compute capability 9.0 (wgmma) of fp16 and bf16 matrices whose lines
// begin anywhere, as the copy engine cannot read them: they are copied first to lines along the depth
// that begin at 128 bytes. Weights times images (a 1x1 convolution) are batches of such products.
#pragma once

#include <vector>

#include "compiler_core/kernels/wgmma/wgmma_matmul.h"

namespace kiln {

struct WgmmaCopiedSchedule : WgmmaMatmulSchedule {
  static constexpr std::string_view kTemplate = "cuda.matmul.wgmma.copied";

  static void fields(auto& f, auto& s) { tile_fields(f, s); }
};

// kUnsupported: what is left to other kernels. REQUIRES: workload.family is kMatmul.
Status check_wgmma_copied(const Workload& workload);

// REQUIRES: check_wgmma_copied() of its workload. kInvalidArgument when the
// schedule does not fit.
Result<Source> print_wgmma_copied(const Graph& graph, const WgmmaCopiedSchedule& schedule,
                                  const Target& target);

// "cuda.matmul.wgmma.copied".
const KernelTemplate& wgmma_copied();

}  // namespace kiln
