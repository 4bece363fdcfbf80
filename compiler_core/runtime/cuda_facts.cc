#include <fmt/core.h>

#include "compiler_core/runtime/cuda_device.h"

namespace kiln {

// From 9.0 on a card is also given code of its own architecture alone, which has the tensor cores'
// and the copy engine's newest instructions: "sm_90a".
Target CudaFacts::target() const {
  Target target;
  target.backend = Backend::kCuda;
  target.isa = fmt::format("sm_{}{}", capability, capability == 90 ? "a" : "");
  target.device_model = name;
  target.units = sms;
  target.toolkit = fmt::format("cuda-{}", driver / 1000);
  return target;
}

}  // namespace kiln
