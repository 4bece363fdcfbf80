#include "compiler_core/kernels/analysis/device_limits.h"

#include <charconv>

#include "compiler_core/base/check.h"

namespace kiln {

int sm_number(const Target& target) {
  if (target.backend != Backend::kCuda || !target.isa.starts_with("sm_")) return 0;
  int number = 0;
  std::from_chars(target.isa.data() + 3, target.isa.data() + target.isa.size(), number);
  return number;
}

CudaLimits cuda_limits(const Target& target) {
  const int sm = sm_number(target);
  CHECK(sm >= 80, "a CUDA target that kernels are written for");
  CudaLimits limits;
  const bool hopper = sm >= 90 && sm < 120;
  limits.sms = target.units > 0 ? target.units : hopper ? 132 : 108;
  limits.block_shared_bytes = hopper ? 227 << 10 : sm == 80 || sm == 87 ? 163 << 10 : 99 << 10;
  limits.sm_shared_bytes = limits.block_shared_bytes + 1024;
  limits.max_cluster = hopper ? 8 : 1;
  limits.sm_threads = sm == 86 || sm == 89 || sm >= 120 ? 1536 : 2048;
  return limits;
}

}  // namespace kiln
