// CudaDriver: the functions of libcuda that this folder calls, opened at run time, under their own
// names: cuda.h's macros turn a name into that of the version its prototype is of, in the table, in
// the look-up and at the call alike. Immutable; the library stays open for the life of the process.
// Private to this folder, and the only header that sees cuda.h.
#pragma once

#include <cuda.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "compiler_core/runtime/cuda_device.h"
#include "compiler_core/runtime/nvml.h"

// The list is a macro because a name is wanted three ways: as a field, as its type, as text.
// clang-format off
#define KILN_CUDA_FUNCTIONS(FUNCTION) \
  FUNCTION(cuInit) FUNCTION(cuDriverGetVersion) FUNCTION(cuGetErrorName) \
  FUNCTION(cuGetErrorString) FUNCTION(cuDeviceGetCount) FUNCTION(cuDeviceGet) \
  FUNCTION(cuDeviceGetName) FUNCTION(cuDeviceGetPCIBusId) FUNCTION(cuDeviceGetAttribute) \
  FUNCTION(cuDeviceTotalMem) FUNCTION(cuDevicePrimaryCtxRetain) FUNCTION(cuDevicePrimaryCtxRelease) \
  FUNCTION(cuCtxSetCurrent) FUNCTION(cuMemAlloc) FUNCTION(cuMemFree) FUNCTION(cuMemGetInfo) \
  FUNCTION(cuMemcpyHtoD) FUNCTION(cuMemcpyDtoH) FUNCTION(cuMemcpyDtoDAsync) \
  FUNCTION(cuMemsetD8Async) FUNCTION(cuStreamCreate) FUNCTION(cuStreamDestroy) \
  FUNCTION(cuStreamSynchronize) FUNCTION(cuStreamQuery) FUNCTION(cuStreamIsCapturing) FUNCTION(cuStreamBeginCapture) \
  FUNCTION(cuStreamEndCapture) FUNCTION(cuGraphInstantiate) FUNCTION(cuGraphExecUpdate) \
  FUNCTION(cuGraphLaunch) FUNCTION(cuGraphDestroy) FUNCTION(cuGraphExecDestroy) \
  FUNCTION(cuEventCreate) FUNCTION(cuEventDestroy) FUNCTION(cuEventRecord) \
  FUNCTION(cuEventElapsedTime) FUNCTION(cuLibraryLoadData) FUNCTION(cuLibraryUnload) \
  FUNCTION(cuLibraryGetKernel) FUNCTION(cuKernelGetFunction) FUNCTION(cuFuncGetAttribute) \
  FUNCTION(cuFuncSetAttribute) FUNCTION(cuLaunchKernelEx)
// clang-format on

namespace kiln {

struct CudaDriver {
  // Opened and initialised. `library`: empty: libcuda.so.1. kUnsupported: no such library, or one
  // that lacks a function; kNotFound: it has no device.
  static Result<CudaDriver> open(const std::string& library);

  // "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered".
  std::string describe(CUresult result) const;
  // `doing` what failed, and how, under `code`.
  Status check(CUresult result, std::string_view doing, Code code = Code::kUnavailable) const;

#define KILN_CUDA_FIELD(name) decltype(&::name) name = nullptr;
  KILN_CUDA_FUNCTIONS(KILN_CUDA_FIELD)
#undef KILN_CUDA_FIELD
  // Null when the library lacks it.
  decltype(&::cuOccupancyMaxActiveClusters) cuOccupancyMaxActiveClusters = nullptr;
};

// Constant after construction, but for `fault` and what `nvml_once` guards.
struct CudaDevice::Impl {
  CudaDriver driver;
  CUdevice device = 0;
  CUcontext context = nullptr;
  CudaFacts facts;
  mutable std::atomic<Fault> fault{Fault::kNone};  // the first
  mutable std::once_flag nvml_once;
  mutable Nvml nvml;

  // As the driver's, and remembers a fault after which the context answers nothing any more.
  Status check(CUresult result, std::string_view doing, Code code = Code::kUnavailable) const;
};

}  // namespace kiln
