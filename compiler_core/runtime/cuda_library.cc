#include "compiler_core/runtime/cuda_library.h"

#include <fmt/core.h>

namespace kiln {

Result<std::unique_ptr<const CudaLibrary>> CudaLibrary::load(
    std::shared_ptr<const CudaDevice> device, std::string_view binary, const Digest& digest) {
  if (Digest::of(binary) != digest)
    return fail(Code::kCorruption,
                fmt::format("a kernel's bytes are not those of {}", digest.short_hex()));
  if (binary.empty()) return fail(Code::kInvalidArgument, "a kernel has no bytes");
  TRY(const CurrentContext current, device->enter());
  const CudaDevice::Impl& impl = device->impl();
  CUlibrary library = nullptr;
  TRY_STATUS(impl.check(impl.driver.cuLibraryLoadData(&library, binary.data(), nullptr, nullptr, 0,
                                                      nullptr, nullptr, 0),
                        "the driver refuses a kernel", Code::kInvalidArgument));
  return std::unique_ptr<const CudaLibrary>(new CudaLibrary(std::move(device), library));
}

CudaLibrary::~CudaLibrary() {
  if (const auto current = device_->enter())
    static_cast<void>(device_->impl().driver.cuLibraryUnload(library_));
}

Result<CUfunction> CudaLibrary::function(const std::string& entry, Code missing) const {
  TRY(const CurrentContext current, device_->enter());
  const CudaDevice::Impl& impl = device_->impl();
  const std::string what = fmt::format("a kernel's entry '{}'", entry);
  CUkernel kernel = nullptr;
  TRY_STATUS(
      impl.check(impl.driver.cuLibraryGetKernel(&kernel, library_, entry.c_str()), what, missing));
  CUfunction function = nullptr;
  TRY_STATUS(impl.check(impl.driver.cuKernelGetFunction(&function, kernel), what, missing));
  return function;
}

}  // namespace kiln
