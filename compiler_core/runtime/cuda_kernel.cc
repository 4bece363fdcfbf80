#include "compiler_core/runtime/cuda_kernel.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <vector>

#include "compiler_core/base/check.h"
#include "compiler_core/base/math.h"
#include "compiler_core/runtime/call_sizes.h"
#include "compiler_core/runtime/cuda_library.h"
#include "compiler_core/runtime/library_call.h"
#include "compiler_core/runtime/tensor_maps.h"

namespace kiln {
namespace {

constexpr int kMostThreads = 1024;           // a block, on every card
constexpr int kUsualSharedBytes = 48 << 10;  // above it a kernel has to ask
constexpr int kUsualCluster = 8;             // likewise
constexpr int kMostCluster = 16;
constexpr int64_t kMostBlocks = INT32_MAX;
constexpr int64_t kWorkspaceAlignment = 256;

// Checks a phase's demands on the device before anything is handed to the driver.
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

// Older drivers do not capture kernels that begin before the one in front of them has ended.
constexpr int kLeastDriverOfDependentLaunches = 12030;

// Whether the driver lets this phase begin before those in front of it have ended.
bool may_begin_early(const CudaDevice::Impl& impl, const Phase& phase) {
  return phase.dependent_launch != DependentLaunch::kNo &&
         impl.facts.driver >= kLeastDriverOfDependentLaunches;
}

// `attributes` is part of what is returned.
using LaunchAttributes = std::array<CUlaunchAttribute, 2>;
CUlaunchConfig launch_config(const Phase& phase, int64_t blocks, bool begins_early, CUstream stream,
                             LaunchAttributes& attributes) {
  CUlaunchConfig config{};
  config.gridDimX = static_cast<unsigned>(blocks);
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = static_cast<unsigned>(phase.threads);
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = static_cast<unsigned>(phase.shared_bytes);
  config.hStream = stream;
  config.attrs = attributes.data();
  if (phase.cluster > 1) {
    CUlaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim = {static_cast<unsigned>(phase.cluster), 1, 1};
  }
  if (begins_early) {
    CUlaunchAttribute& dependent = attributes[config.numAttrs++];
    dependent.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    dependent.value.programmaticStreamSerializationAllowed = 1;
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
  LaunchAttributes attributes{};
  const CUlaunchConfig config =
      launch_config(phase, phase.cluster, may_begin_early(impl, phase), nullptr, attributes);
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
    if (other.call || other.entry != phase.entry) continue;
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

Status launch_phase(const CudaDevice::Impl& impl, CUfunction function, const Phase& phase,
                    int64_t blocks, bool begins_early, void** parameters, CUstream stream) {
  LaunchAttributes attributes{};
  const CUlaunchConfig config = launch_config(phase, blocks, begins_early, stream, attributes);
  const CUresult launched = impl.driver.cuLaunchKernelEx(&config, function, parameters, nullptr);
  return impl.check(launched, "launching a kernel",
                    is_about_the_launch(launched) ? Code::kInvalidArgument : Code::kUnavailable);
}

}  // namespace

struct CudaKernel::Impl {
  std::shared_ptr<const CudaDevice> device;
  Recipe recipe;
  std::unique_ptr<const CudaLibrary> library;  // null: all phases are library calls
  struct Stage {
    CUfunction entry = nullptr;                     // of a kernel
    std::unique_ptr<const LoadedLibraryCall> call;  // or null
  };
  std::vector<Stage> stages;  // one a phase
  mutable EncodedMaps maps;

  // The recipe's workspace becomes what its library calls need, where they are all there is.
  void take_needed_workspace() {
    int64_t needed = 0;
    for (const Stage& stage : stages) {
      const auto bytes = stage.call ? stage.call->workspace_bytes() : std::nullopt;
      if (!bytes) return;
      needed = std::max(needed, *bytes);
    }
    recipe.workspace_bytes = round_up(needed, kWorkspaceAlignment);
  }

  // A phase's parameters as the driver reads them: addresses of their values.
  struct Parameters {
    std::vector<void*> addresses;
    std::vector<CUtensorMap> maps;
  };
  Status list_arguments(const Phase& phase, std::span<const DevicePtr> args,
                        const DevicePtr& workspace, std::span<const int64_t> dims,
                        ReadyInputs ready, Parameters& parameters) const {
    static constexpr int64_t kNo = 0, kYes = 1;
    using Kind = KernelArgument::Kind;
    parameters.addresses.clear();
    parameters.maps.clear();
    parameters.maps.reserve(phase.arguments.size());  // so that addresses stay
    for (const KernelArgument& argument : phase.arguments) {
      const size_t index = static_cast<size_t>(argument.index);
      const void* value = &workspace;
      if (argument.kind == Kind::kBuffer) value = &args[index];
      if (argument.kind == Kind::kSymbol) value = &dims[index];
      if (argument.kind == Kind::kReady) value = ready.has(index) ? &kYes : &kNo;
      if (argument.kind == Kind::kTensorMap) {
        const DevicePtr buffer = args[static_cast<size_t>(argument.map->buffer)];
        TRY(parameters.maps.emplace_back(), maps.get(device->impl(), *argument.map, buffer, dims));
        value = &parameters.maps.back();
      }
      parameters.addresses.push_back(const_cast<void*>(value));
    }
    return {};
  }
};

CudaKernel::CudaKernel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudaKernel::CudaKernel(CudaKernel&&) noexcept = default;
CudaKernel& CudaKernel::operator=(CudaKernel&&) noexcept = default;
CudaKernel::~CudaKernel() = default;

Result<CudaKernel> CudaKernel::load(const std::shared_ptr<const CudaDevice>& device,
                                    const Artifact& artifact) {
  const auto is_kernel = [](const Phase& phase) { return !phase.call; };
  TRY(const CurrentContext current, device->enter());
  auto impl = std::make_unique<Impl>();
  impl->device = device;
  impl->recipe = artifact.recipe;
  for (const Phase& phase : impl->recipe.phases)
    if (is_kernel(phase)) TRY_STATUS(check_phase(phase, device->facts()));
  if (std::ranges::any_of(impl->recipe.phases, is_kernel)) {
    TRY(impl->library, CudaLibrary::load(device, artifact.binary, artifact.digest));
  } else if (Digest::of(artifact.binary) != artifact.digest) {
    return fail(Code::kCorruption,
                fmt::format("a kernel's bytes are not those of {}", artifact.digest.short_hex()));
  }
  for (const Phase& phase : impl->recipe.phases) {
    Impl::Stage& stage = impl->stages.emplace_back();
    if (phase.call) {
      TRY(stage.call, LoadedLibraryCall::load(device, *phase.call));
    } else {
      TRY(stage.entry, find_entry(*impl->library, impl->recipe, phase));
    }
  }
  impl->take_needed_workspace();
  return CudaKernel(std::move(impl));
}

const Recipe& CudaKernel::recipe() const {
  return impl_->recipe;
}

Status CudaKernel::launch(std::span<const DevicePtr> args, DevicePtr workspace,
                          std::span<const int64_t> dims, Stream stream,
                          const LaunchOrder& order) const {
  const Recipe& recipe = impl_->recipe;
  CHECK(args.size() == recipe.inputs.size() + recipe.outputs.size(), "one buffer an argument");
  const CudaDevice& device = *impl_->device;
  TRY(const CurrentContext current, device.enter());
  std::vector<void*> parameters;  // addresses of the values, which the driver copies
  parameters.reserve(args.size() + 1 + dims.size());
  for (const DevicePtr& arg : args) parameters.push_back(const_cast<DevicePtr*>(&arg));
  parameters.push_back(&workspace);
  for (const int64_t& dim : dims) parameters.push_back(const_cast<int64_t*>(&dim));
  Impl::Parameters listed;
  bool behind_all = order.behind_all;  // of the first phase that has blocks
  for (size_t i = 0; i < recipe.phases.size(); ++i) {
    const Phase& phase = recipe.phases[i];
    if (const auto& call = impl_->stages[i].call) {
      TRY(const int64_t bytes, recipe.workspace_bytes.evaluate(dims));
      TRY_STATUS(call->launch(args, workspace, bytes, dims, stream));
      behind_all = false;
      continue;
    }
    const int64_t blocks = blocks_of(phase, dims);
    if (blocks == 0) continue;
    if (blocks > kMostBlocks)
      return fail(Code::kInvalidArgument,
                  fmt::format("a grid of {} blocks; a launch takes {}", blocks, kMostBlocks));
    if (!phase.arguments.empty())
      TRY_STATUS(impl_->list_arguments(phase, args, workspace, dims, order.ready, listed));
    void** const values = phase.arguments.empty() ? parameters.data() : listed.addresses.data();
    const bool begins_early = !behind_all && may_begin_early(device.impl(), phase);
    TRY_STATUS(launch_phase(device.impl(), impl_->stages[i].entry, phase, blocks, begins_early,
                            values, static_cast<CUstream>(stream)));
    behind_all = false;
  }
  return {};
}

}  // namespace kiln
