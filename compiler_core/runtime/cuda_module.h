// CudaModule: a cubin whose entries are launched by name with parameters of their own, outside the
// launch model of program/artifact.h. For code of our own; candidates are CudaKernels. Immutable
// once loaded; one thread at a time launches.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "compiler_core/base/digest.h"
#include "compiler_core/runtime/cuda_device.h"

namespace kiln {

class CudaModule {
 public:
  // kCorruption: `binary` does not have this digest; kInvalidArgument: the driver refuses it.
  static Result<CudaModule> load(std::shared_ptr<const CudaDevice> device, std::string_view binary,
                                 const Digest& digest);
  CudaModule(CudaModule&&) noexcept;
  CudaModule& operator=(CudaModule&&) noexcept;
  ~CudaModule();

  const std::shared_ptr<const CudaDevice>& device() const;
  // Puts `grid` blocks of `threads` threads on the stream; does not wait. `parameters`: pointers to
  // device memory and integers, 64 bits each, as `entry` declares them. Nothing happens when `grid`
  // is 0. kNotFound: no such entry; kUnavailable: the driver refuses, as it does after a fault.
  Status launch(const std::string& entry, int64_t grid, int threads,
                std::span<const int64_t> parameters, CudaStream stream) const;

 private:
  struct Impl;
  explicit CudaModule(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
