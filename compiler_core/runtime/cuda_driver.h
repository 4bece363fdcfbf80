// CudaDriver: the functions of libcuda that this folder calls, and Nvml: those of NVIDIA's
// management library. Opened at run time. Immutable; the libraries stay open for the life of the
// process. Private to this folder.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "compiler_core/runtime/cuda_api.h"
#include "compiler_core/runtime/cuda_device.h"

namespace kiln {

// The function `symbol` of a library that is open; null, and false: it has none.
void* find_symbol(void* library, const char* symbol);
template <class Function>
bool find_symbol(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(find_symbol(library, symbol));
  return function != nullptr;
}

struct CublasLt;  // cublaslt.h

struct CudaDriver {
  // Opened and initialised. `library`: empty: libcuda.so.1. kUnsupported: no such library, or one
  // that lacks a function; kNotFound: it has no device.
  static Result<CudaDriver> open(const std::string& library);

  // "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered".
  std::string describe(CUresult result) const;
  // `doing` what failed, and how, under `code`.
  Status check(CUresult result, std::string_view doing, Code code = Code::kUnavailable) const;

#define KILN_CUDA_FIELD(name, symbol, ...) CUresult (*name)(__VA_ARGS__) = nullptr;
  KILN_CUDA_FUNCTIONS(KILN_CUDA_FIELD)
  KILN_OPTIONAL_CUDA_FUNCTIONS(KILN_CUDA_FIELD)  // null when the library lacks them
#undef KILN_CUDA_FIELD
};

// The clocks of a card; zero where the library is missing or does not know the card. Thread-safe.
class Nvml {
 public:
  // The card of this PCI bus id.
  static Nvml open(const std::string& bus_id);
  Device::Clocks clocks() const;

 private:
  void* card_ = nullptr;  // nvmlDevice_t; null: nobody to ask
  int (*clock_info_)(void* card, int type, unsigned* mhz) = nullptr;
  int (*reasons_)(void* card, unsigned long long* bits) = nullptr;
};

// Constant after construction, but for `fault` and what the two flags guard.
struct CudaDevice::Impl {
  CudaDriver driver;
  CUdevice device = 0;
  CUcontext context = nullptr;
  CudaFacts facts;
  mutable std::atomic<Fault> fault{Fault::kNone};  // the first
  mutable std::once_flag nvml_once;
  mutable Nvml nvml;
  std::string libcuda_file, cublaslt_file;  // as passed to open()
  mutable std::once_flag cublaslt_once;
  mutable std::shared_ptr<const CublasLt> cublaslt;  // null: why not says `cublaslt_missing`
  mutable Error cublaslt_missing;

  // As the driver's, and remembers a fault after which the context answers nothing any more.
  Status check(CUresult result, std::string_view doing, Code code = Code::kUnavailable) const;
};

}  // namespace kiln
