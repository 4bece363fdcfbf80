// CudaLibrary: a cubin that the driver has taken, unloaded when the object goes; its functions live
// as long. Immutable; thread-safe. Private to this folder.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "compiler_core/base/digest.h"
#include "compiler_core/runtime/cuda_driver.h"

namespace kiln {

class CudaLibrary {
 public:
  // kCorruption: `binary` does not have this digest; nothing is handed to the driver then.
  // kInvalidArgument: the driver refuses it.
  static Result<std::unique_ptr<const CudaLibrary>> load(std::shared_ptr<const CudaDevice> device,
                                                         std::string_view binary,
                                                         const Digest& digest);
  CudaLibrary(const CudaLibrary&) = delete;
  CudaLibrary& operator=(const CudaLibrary&) = delete;
  ~CudaLibrary();

  // On the device when this returns: the driver loads code when it is first asked for. `missing`:
  // the code of the error when there is no such entry.
  Result<CUfunction> function(const std::string& entry, Code missing) const;
  const std::shared_ptr<const CudaDevice>& device() const { return device_; }

 private:
  CudaLibrary(std::shared_ptr<const CudaDevice> device, CUlibrary library)
      : device_(std::move(device)), library_(library) {}
  const std::shared_ptr<const CudaDevice> device_;
  const CUlibrary library_;
};

}  // namespace kiln
