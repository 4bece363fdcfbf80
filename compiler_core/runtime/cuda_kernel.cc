#include "compiler_core/runtime/cuda_kernel.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "compiler_core/base/check.h"
#include "compiler_core/runtime/cuda_library.h"

namespace kiln {
namespace {

constexpr int kMostThreads = 1024;           // a block, on every card
constexpr int kUsualSharedBytes = 48 << 10;  // above it a kernel has to ask
constexpr int kUsualCluster = 8;             // likewise
constexpr int kMostCluster = 16;
constexpr int64_t kMostBlocks = INT32_MAX;

// What the recipe asks of the device, before anything is handed to the driver.
Status check_phase(const Phase& phase, const CudaFacts& facts) {
  const auto refuse = [&phase](std::string why) {
    return fail(Code::kInvalidArgument, fmt::format("phase '{}' {}", phase.entry, std::move(why)));
  };
  if (phase.threads < 1 || phase.threads > kMostThreads)
    return refuse(fmt::format("has blocks of {} threads; a block takes 1 to {}", phase.threads,
                              kMostThreads));
  if (phase.shared_bytes < 0 || phase.shared_bytes > facts.max_shared_bytes)
    return refuse(fmt::format("asks for {} bytes of shared memory; a block of {} has {}",
                              phase.shared_bytes, facts.name, facts.max_shared_bytes));
  if (phase.cluster < 1 || phase.cluster > kMostCluster)
    return refuse(fmt::format("has clusters of {} blocks; at most {} are possible", phase.cluster,
                              kMostCluster));
  if (phase.grid.is_constant() && phase.grid.constant() % phase.cluster != 0)
    return refuse(fmt::format("has {} blocks, which clusters of {} do not divide",
                              phase.grid.constant(), phase.cluster));
  return {};
}

Result<int> attribute(const CudaDevice::Impl& impl, CUfunction function,
                      CUfunction_attribute which) {
  int value = 0;
  TRY_STATUS(impl.check(impl.driver.cuFuncGetAttribute(&value, which, function),
                        "asking for a kernel's attributes"));
  return value;
}

Status set_attribute(const CudaDevice::Impl& impl, CUfunction function, CUfunction_attribute which,
                     int value) {
  return impl.check(impl.driver.cuFuncSetAttribute(function, which, value),
                    "setting a kernel's attributes", Code::kInvalidArgument);
}

// Whether `function`, as compiled, can be launched as `phase` says.
Status check_function(const CudaDevice::Impl& impl, CUfunction function, const Phase& phase) {
  TRY(const int threads, attribute(impl, function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
  if (phase.threads > threads)
    return fail(Code::kInvalidArgument,
                fmt::format("phase '{}' has blocks of {} threads, its registers leave room for {}",
                            phase.entry, phase.threads, threads));
  TRY(const int fixed, attribute(impl, function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
  if (int64_t{fixed} + phase.shared_bytes > impl.facts.max_shared_bytes)
    return fail(Code::kInvalidArgument,
                fmt::format("phase '{}' asks for {} bytes of shared memory beside its own {}; a "
                            "block of {} has {}",
                            phase.entry, phase.shared_bytes, fixed, impl.facts.name,
                            impl.facts.max_shared_bytes));
  return {};
}

// `cluster` is part of what is returned.
CUlaunchConfig launch_config(const Phase& phase, int64_t blocks, CUstream stream,
                             CUlaunchAttribute& cluster) {
  CUlaunchConfig config{};
  config.gridDimX = static_cast<unsigned>(blocks);
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = static_cast<unsigned>(phase.threads);
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = static_cast<unsigned>(phase.shared_bytes);
  config.hStream = stream;
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim = {static_cast<unsigned>(phase.cluster), 1, 1};
  if (phase.cluster > 1) {
    config.attrs = &cluster;
    config.numAttrs = 1;
  }
  return config;
}

// The driver refuses this launch, rather than any.
bool is_about_the_launch(CUresult result) {
  return result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_CLUSTER_SIZE ||
         result == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
}

// Whether the SMs of one cluster's reach hold it: that depends on registers and shared memory.
Status check_cluster(const CudaDevice::Impl& impl, CUfunction function, const Phase& phase) {
  const auto ask = impl.driver.cuOccupancyMaxActiveClusters;
  if (phase.cluster == 1 || ask == nullptr) return {};
  CUlaunchAttribute cluster{};
  const CUlaunchConfig config = launch_config(phase, phase.cluster, nullptr, cluster);
  int clusters = 0;
  const std::string what = fmt::format(
      "a cluster of {} blocks of '{}' with {} bytes of shared "
      "memory each",
      phase.cluster, phase.entry, phase.shared_bytes);
  TRY_STATUS(impl.check(ask(&clusters, function, &config), what, Code::kInvalidArgument));
  if (clusters > 0) return {};
  return fail(Code::kInvalidArgument, what + " does not fit the device");
}

// The entry of `phase`, on the device and ready for what any phase of the recipe asks of it.
Result<CUfunction> find_entry(const CudaLibrary& library, const Recipe& recipe,
                              const Phase& phase) {
  const CudaDevice::Impl& impl = library.device()->impl();
  TRY(const CUfunction function, library.function(phase.entry, Code::kInvalidArgument));
  TRY_STATUS(check_function(impl, function, phase));
  int shared_bytes = 0, cluster = 1;
  for (const Phase& other : recipe.phases) {
    if (other.entry != phase.entry) continue;
    shared_bytes = std::max(shared_bytes, other.shared_bytes);
    cluster = std::max(cluster, other.cluster);
  }
  if (shared_bytes > kUsualSharedBytes)
    TRY_STATUS(set_attribute(impl, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                             shared_bytes));
  if (cluster > kUsualCluster)
    TRY_STATUS(
        set_attribute(impl, function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
  TRY_STATUS(check_cluster(impl, function, phase));
  return function;
}

int64_t blocks_of(const Phase& phase, std::span<const int64_t> dims) {
  const Result<int64_t> blocks = phase.grid.blocks(dims);
  CHECK(blocks.has_value(), "a launch binds every symbol of its recipe");
  return *blocks;
}

Status launch_phase(const CudaDevice::Impl& impl, CUfunction function, const Phase& phase,
                    int64_t blocks, void** parameters, CUstream stream) {
  CUlaunchAttribute cluster{};
  const CUlaunchConfig config = launch_config(phase, blocks, stream, cluster);
  const CUresult launched = impl.driver.cuLaunchKernelEx(&config, function, parameters, nullptr);
  return impl.check(launched, "launching a kernel",
                    is_about_the_launch(launched) ? Code::kInvalidArgument : Code::kUnavailable);
}

}  // namespace

struct CudaKernel::Impl {
  Recipe recipe;
  std::unique_ptr<const CudaLibrary> library;
  std::vector<CUfunction> entries;  // one per phase
};

CudaKernel::CudaKernel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudaKernel::CudaKernel(CudaKernel&&) noexcept = default;
CudaKernel& CudaKernel::operator=(CudaKernel&&) noexcept = default;
CudaKernel::~CudaKernel() = default;

Result<CudaKernel> CudaKernel::load(std::shared_ptr<const CudaDevice> device,
                                    const Artifact& artifact) {
  for (const Phase& phase : artifact.recipe.phases) TRY_STATUS(check_phase(phase, device->facts()));
  auto impl = std::make_unique<Impl>();
  impl->recipe = artifact.recipe;
  TRY(impl->library, CudaLibrary::load(std::move(device), artifact.binary, artifact.digest));
  for (const Phase& phase : impl->recipe.phases) {
    TRY(const CUfunction entry, find_entry(*impl->library, impl->recipe, phase));
    impl->entries.push_back(entry);
  }
  return CudaKernel(std::move(impl));
}

const Recipe& CudaKernel::recipe() const {
  return impl_->recipe;
}

Status CudaKernel::launch(std::span<const DevicePtr> args, DevicePtr workspace,
                          std::span<const int64_t> dims, Stream stream) const {
  const Recipe& recipe = impl_->recipe;
  CHECK(args.size() == recipe.inputs.size() + recipe.outputs.size(), "one buffer an argument");
  const CudaDevice& device = *impl_->library->device();
  TRY_STATUS(device.make_current());
  std::vector<void*> parameters;  // addresses of the values, which the driver copies
  parameters.reserve(args.size() + 1 + dims.size());
  for (const DevicePtr& arg : args) parameters.push_back(const_cast<DevicePtr*>(&arg));
  parameters.push_back(&workspace);
  for (const int64_t& dim : dims) parameters.push_back(const_cast<int64_t*>(&dim));
  for (size_t i = 0; i < recipe.phases.size(); ++i) {
    const int64_t blocks = blocks_of(recipe.phases[i], dims);
    if (blocks == 0) continue;
    if (blocks > kMostBlocks)
      return fail(Code::kInvalidArgument,
                  fmt::format("a grid of {} blocks; a launch takes {}", blocks, kMostBlocks));
    TRY_STATUS(launch_phase(device.impl(), impl_->entries[i], recipe.phases[i], blocks,
                            parameters.data(), static_cast<CUstream>(stream)));
  }
  return {};
}

}  // namespace kiln
