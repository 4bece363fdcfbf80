// GpuOpening: an NVIDIA GPU of this machine, opened when first asked for, or at once in the
// background: opening takes a few tenths of a second, in which the caller can read a graph and ask
// the service. The outcome, also a failure, stays. Thread-safe.
#pragma once

#include <future>
#include <memory>
#include <string>

#include "compiler_core/runtime/cuda_device.h"

namespace kiln {

class GpuOpening {
 public:
  using DeviceResult = Result<std::shared_ptr<const CudaDevice>>;

  // `ordinal` and the libraries as for CudaDevice::open.
  GpuOpening(int ordinal, const std::string& libcuda, bool at_once,
             const std::string& libcublaslt = {});

  // Both wait. Errors as CudaDevice::open.
  const Result<CudaFacts>& facts() const { return facts_.get().result; }
  const DeviceResult& device() const { return device_.get().result; }
  // The time that opening took, in ms. REQUIRES: device() was asked for.
  double context_ms() const { return facts_.get().ms + device_.get().ms; }

 private:
  template <class T>
  struct Timed {
    T result;
    double ms = 0;
  };
  std::shared_future<Timed<Result<CudaFacts>>> facts_;
  std::shared_future<Timed<DeviceResult>> device_;
};

}  // namespace kiln
