// CudaKernel: a loaded cubin, see the CUDA launch model in program/artifact.h. Loading checks the
// digest; nothing is handed to the driver before that. Immutable once loaded; threads may launch it
// at once on their own streams.
#pragma once

#include <memory>
#include <span>

#include "compiler_core/program/artifact.h"
#include "compiler_core/runtime/cuda_device.h"

namespace kiln {

class CudaKernel : public LoadedKernel {
 public:
  // Through cuLibraryLoadData, every entry touched (cuKernelGetFunction) and its shared memory and
  // cluster attributes set, so that the first launch pays nothing. kCorruption: the binary's digest
  // is not artifact.digest. kInvalidArgument: the driver refuses the binary, an entry is missing,
  // or a phase asks for more threads, shared memory or blocks of a cluster than the device has.
  static Result<CudaKernel> load(const std::shared_ptr<const CudaDevice>& device,
                                 const Artifact& artifact);
  CudaKernel(CudaKernel&&) noexcept;
  CudaKernel& operator=(CudaKernel&&) noexcept;
  ~CudaKernel() override;

  const Recipe& recipe() const override;
  // Does not wait. Phases with an empty grid are left out.
  Status launch(std::span<const DevicePtr> args, DevicePtr workspace, std::span<const int64_t> dims,
                Stream stream, const LaunchOrder& order) const override;

 private:
  struct Impl;
  explicit CudaKernel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
