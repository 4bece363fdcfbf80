#include "compiler_core/runtime/cuda_module.h"

#include <map>
#include <vector>

#include "compiler_core/runtime/cuda_library.h"

namespace kiln {

struct CudaModule::Impl {
  std::shared_ptr<const CudaDevice> device;
  std::unique_ptr<const CudaLibrary> library;
  mutable std::map<std::string, CUfunction> functions;  // those that were launched already
};

CudaModule::CudaModule(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudaModule::CudaModule(CudaModule&&) noexcept = default;
CudaModule& CudaModule::operator=(CudaModule&&) noexcept = default;
CudaModule::~CudaModule() = default;

Result<CudaModule> CudaModule::load(std::shared_ptr<const CudaDevice> device,
                                    std::string_view binary, const Digest& digest) {
  auto impl = std::make_unique<Impl>();
  impl->device = device;
  TRY(impl->library, CudaLibrary::load(std::move(device), binary, digest));
  return CudaModule(std::move(impl));
}

const std::shared_ptr<const CudaDevice>& CudaModule::device() const {
  return impl_->device;
}

Status CudaModule::launch(const std::string& entry, int64_t grid, int threads,
                          std::span<const int64_t> parameters, CudaStream stream) const {
  if (grid == 0) return {};
  const CudaDevice& device = *impl_->device;
  TRY(const CurrentContext current, device.enter());
  auto found = impl_->functions.find(entry);
  if (found == impl_->functions.end()) {
    TRY(const CUfunction function, impl_->library->function(entry, Code::kNotFound));
    found = impl_->functions.emplace(entry, function).first;
  }
  std::vector<void*> addresses;  // of the values, which the driver copies
  for (const int64_t& value : parameters) addresses.push_back(const_cast<int64_t*>(&value));
  CUlaunchConfig config{};
  config.gridDimX = static_cast<unsigned>(grid);
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = static_cast<unsigned>(threads);
  config.blockDimY = config.blockDimZ = 1;
  config.hStream = static_cast<CUstream>(stream);
  return device.impl().check(
      device.impl().driver.cuLaunchKernelEx(&config, found->second, addresses.data(), nullptr),
      "launching " + entry);
}

}  // namespace kiln
