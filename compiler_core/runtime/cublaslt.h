// CublasLt: the library itself: found, opened, and its handle. Immutable; any number of threads use
// one. Private to this folder.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "compiler_core/runtime/cublaslt_api.h"
#include "compiler_core/runtime/cuda_driver.h"

namespace kiln {

// cuBLASLt's functions and a handle of one device.
struct CublasLt {
#define KILN_FIELD(name, ...) cublasStatus_t (*name)(__VA_ARGS__) = nullptr;
  KILN_CUBLASLT_FUNCTIONS(KILN_FIELD)
#undef KILN_FIELD
  size_t (*cublasLtGetVersion)() = nullptr;
  const char* (*cublasLtGetStatusString)(cublasStatus_t status) = nullptr;
  cublasLtHandle_t handle = nullptr;
  std::string version;

  Status check(cublasStatus_t status, std::string_view doing, Code code) const {
    if (status == CUBLAS_STATUS_SUCCESS) return {};
    return fail(code, fmt::format("cuBLASLt: {}: {}", doing, cublasLtGetStatusString(status)));
  }
};

// The device's, opened when somebody first asks. Errors as library_version().
Result<const CublasLt*> cublaslt_of(const CudaDevice& device);

}  // namespace kiln
