#include "compiler_core/runtime/cuda_driver.h"

#include <dlfcn.h>
#include <fmt/core.h>

namespace kiln {
namespace {

using Fault = CudaDevice::Fault;

// The card's context is gone after these, for every call and until the process ends.
Fault fault_of(CUresult result) {
  switch (static_cast<int>(result)) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
      return Fault::kAddress;
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
      return Fault::kKernel;
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_UNKNOWN:
      return Fault::kOther;
    default:
      return Fault::kNone;
  }
}

tl::unexpected<Error> lacks(std::string_view symbol) {
  return fail(Code::kUnsupported,
              fmt::format("the NVIDIA driver here lacks {}: it is too old; install one of CUDA "
                          "12.1 or newer",
                          symbol));
}

}  // namespace

void* find_symbol(void* library, const char* symbol) {
  return ::dlsym(library, symbol);
}

Result<CudaDriver> CudaDriver::open(const std::string& library) {
  const std::string file = library.empty() ? "libcuda.so.1" : library;
  void* const handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return fail(Code::kUnsupported, fmt::format("no NVIDIA driver here: {}", ::dlerror()));
  CudaDriver driver;
#define KILN_CUDA_FIND(name, symbol, ...) \
  if (!find_symbol(handle, symbol, driver.name)) return lacks(symbol);
  KILN_CUDA_FUNCTIONS(KILN_CUDA_FIND)
#undef KILN_CUDA_FIND
#define KILN_CUDA_FIND(name, symbol, ...) find_symbol(handle, symbol, driver.name);
  KILN_OPTIONAL_CUDA_FUNCTIONS(KILN_CUDA_FIND)
#undef KILN_CUDA_FIND
  const CUresult started = driver.cuInit(0);
  if (started == CUDA_ERROR_NO_DEVICE) return fail(Code::kNotFound, "no NVIDIA GPU here");
  TRY_STATUS(driver.check(started, "starting the NVIDIA driver", Code::kUnsupported));
  return driver;
}

std::string CudaDriver::describe(CUresult result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr)
    return fmt::format("CUDA error {}", static_cast<int>(result));
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS || text == nullptr) return name;
  return fmt::format("{}: {}", name, text);
}

Status CudaDriver::check(CUresult result, std::string_view doing, Code code) const {
  if (result == CUDA_SUCCESS) return {};
  return fail(code, fmt::format("{}: {}", doing, describe(result)));
}

Status CudaDevice::Impl::check(CUresult result, std::string_view doing, Code code) const {
  if (result == CUDA_SUCCESS) return {};
  const Fault found = fault_of(result);
  if (found == Fault::kNone) return driver.check(result, doing, code);
  Fault none = Fault::kNone;
  fault.compare_exchange_strong(none, found);
  return driver.check(result, doing, Code::kUnavailable);
}

}  // namespace kiln
