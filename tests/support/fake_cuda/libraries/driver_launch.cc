// libfake_cuda.so: libraries, kernels and launches.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>

#include "tests/support/fake_cuda/grid.h"
#include "tests/support/fake_cuda/libraries/fake_driver.h"

namespace kiln::testing {
namespace {

std::atomic<int> g_early_launches = 0;

struct FakeLibrary {
  std::shared_ptr<const HostModule> module;
  std::map<std::string, FakeFunction, std::less<>> functions;
};

FakeFunction& function_of(CUfunction function) {
  return *reinterpret_cast<FakeFunction*>(function);
}

CUresult error_of(const GridFault& fault) {
  switch (fault.kind) {
    case kiln_fake::FaultKind::kIllegalAddress:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case kiln_fake::FaultKind::kMisaligned:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case kiln_fake::FaultKind::kLaunchFailed:
      break;
  }
  return CUDA_ERROR_LAUNCH_FAILED;
}

// A launch with its own copy of the parameters, which live no longer than the call.
struct Launch {
  std::shared_ptr<const HostModule> module;
  kiln_fake::Entry entry{};
  struct alignas(128) Value {
    char bytes[sizeof(kiln_fake::TensorMap)];
  };
  std::vector<Value> values;
  unsigned blocks = 0;
  int threads = 0, cluster = 1, shared_bytes = 0;

  CUresult operator()() const {
    std::vector<void*> parameters;
    for (const Value& value : values) parameters.push_back(const_cast<char*>(value.bytes));
    const auto fault = run_grid({entry, module->module().current, parameters.data(), blocks,
                                 threads, cluster, shared_bytes, false});
    if (!fault) return CUDA_SUCCESS;
    fmt::print(stderr, "fake GPU: {} (address {})\n", fault->message, fault->address);
    return error_of(*fault);
  }
};

// What a device refuses before it starts anything.
CUresult check(const Launch& launch, const FakeFunction& function, const CUlaunchConfig& config) {
  const int most = function.entry.max_threads != 0 ? function.entry.max_threads : 1024;
  if (config.gridDimX == 0 || config.gridDimY != 1 || config.gridDimZ != 1 ||
      config.gridDimX > 0x7fffffff || config.blockDimX == 0 || config.blockDimY != 1 ||
      config.blockDimZ != 1 || config.blockDimX > static_cast<unsigned>(most) ||
      config.sharedMemBytes > static_cast<unsigned>(function.max_dynamic_shared))
    return CUDA_ERROR_INVALID_VALUE;
  if (launch.cluster < 1 || launch.cluster > 16 || (launch.cluster > 8 && !function.large_clusters))
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  if (config.gridDimX % static_cast<unsigned>(launch.cluster) != 0) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult launch_kernel(const CUlaunchConfig& config, CUfunction handle, void** parameters) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  if (handle == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const FakeFunction& function = function_of(handle);
  if (function.context != current_context()) return CUDA_ERROR_INVALID_HANDLE;
  Launch launch{function.module,
                function.entry,
                {},
                config.gridDimX,
                static_cast<int>(config.blockDimX),
                1,
                static_cast<int>(config.sharedMemBytes)};
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      launch.cluster = static_cast<int>(attribute.value.clusterDim.x);
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
      g_early_launches += attribute.value.programmaticStreamSerializationAllowed;
  }
  if (const CUresult result = check(launch, function, config); result != CUDA_SUCCESS)
    return result;
  for (int i = 0; i < function.entry.parameter_count; ++i) {
    if (parameters == nullptr || parameters[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(launch.values.emplace_back().bytes, parameters[i],
                static_cast<size_t>(function.entry.parameter_bytes[i]));
  }
  return enqueue(config.hStream, {FakeNode::Kind::kLaunch, std::move(launch)});
}

// "sm_90a" runs on this device and no older or newer architecture's does.
bool runs_here(const HostModule& module) {
  return std::string_view(module.module().architecture).starts_with("sm_90");
}

}  // namespace
}  // namespace kiln::testing

using namespace kiln::testing;  // NOLINT(google-build-using-namespace)

extern "C" {

// For tests: how many launches of this process may begin before those in front of them have ended.
int kiln_fake_early_launches() {
  return g_early_launches;
}

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  if (library == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto bytes = host_cubin_bytes(code);
  if (!bytes) return CUDA_ERROR_INVALID_IMAGE;
  auto module = HostModule::load(*bytes);
  if (!module) return CUDA_ERROR_INVALID_IMAGE;
  if (!runs_here(**module)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  *library = reinterpret_cast<CUlibrary>(new FakeLibrary{*std::move(module), {}});
  return CUDA_SUCCESS;
}

// Work that is still to run holds the code.
CUresult cuLibraryUnload(CUlibrary library) {
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  delete reinterpret_cast<FakeLibrary*>(library);
  return ready();
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary handle, const char* name) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  auto& library = *reinterpret_cast<FakeLibrary*>(handle);
  const kiln_fake::Entry* entry = library.module->find(name);
  if (entry == nullptr) return CUDA_ERROR_NOT_FOUND;
  FakeFunction& function =
      library.functions.try_emplace(name, FakeFunction{library.module, *entry, current_context()})
          .first->second;
  *kernel = reinterpret_cast<CUkernel>(&function);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  *function = reinterpret_cast<CUfunction>(kernel);
  return kernel == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  const FakeFunction& function = function_of(handle);
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = function.entry.max_threads != 0 ? function.entry.max_threads : 1024;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = function.max_dynamic_shared;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = 32;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = 90;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      *value = function.large_clusters ? 1 : 0;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  FakeFunction& function = function_of(handle);
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 || value > FakeDevice::kMaxSharedBytes) return CUDA_ERROR_INVALID_VALUE;
      function.max_dynamic_shared = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      function.large_clusters = value != 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                              CUdevice) {
  return cuFuncSetAttribute(reinterpret_cast<CUfunction>(kernel), attribute, value);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void**) {
  return config == nullptr ? CUDA_ERROR_INVALID_VALUE
                           : launch_kernel(*config, function, parameters);
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream stream, void** parameters, void**) {
  CUlaunchConfig config{};
  config.gridDimX = grid_x, config.gridDimY = grid_y, config.gridDimZ = grid_z;
  config.blockDimX = block_x, config.blockDimY = block_y, config.blockDimZ = block_z;
  config.sharedMemBytes = shared;
  config.hStream = stream;
  return launch_kernel(config, function, parameters);
}

}  // extern "C"
