// libfake_cuda.so: the device, its context, errors.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>

#include "tests/support/fake_cuda/libraries/fake_driver.h"

namespace kiln::testing {
namespace {

std::atomic<bool> g_initialized{false};
thread_local CUcontext g_current = nullptr;

// GPUs of this process: KILN_FAKE_GPUS, or one. They share memory and streams, but each has its own context, of which
// only the address means something.
constexpr int kMostGpus = 8;
int g_contexts[kMostGpus];
int gpus() {
  const char* const asked = std::getenv("KILN_FAKE_GPUS");
  return asked == nullptr ? 1 : std::clamp(std::atoi(asked), 1, kMostGpus);
}
CUcontext context_of(CUdevice device) {
  return reinterpret_cast<CUcontext>(&g_contexts[device]);
}
bool is_context(CUcontext context) {
  for (CUdevice device = 0; device < kMostGpus; ++device)
    if (context == context_of(device)) return true;
  return false;
}

// NVIDIA's driver (580.159 on Linux 6.18) starts only where it may name a thread and listen at a local
// socket, and so does this one.
bool names_its_thread() {
  const std::string file = "/proc/self/task/" + std::to_string(::gettid()) + "/comm";
  FILE* const comm = std::fopen(file.c_str(), "wb");
  if (comm != nullptr) std::fclose(comm);
  return comm != nullptr;
}
bool listens() {
  static const int listening = [] {
    const sa_family_t any = AF_UNIX;  // the kernel finds a name
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool made = fd >= 0 &&
                      ::bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0 &&
                      ::listen(fd, 16) == 0;
    if (!made && fd >= 0) ::close(fd);
    return made ? fd : -1;
  }();
  return listening >= 0;
}

struct ErrorName {
  CUresult error;
  const char* name;
  const char* text;
};
constexpr ErrorName kErrors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {CUDA_ERROR_MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
     "the graph update was not performed because it included changes which violated constraints "
     "specific to instantiated graph update"},
    {CUDA_ERROR_INVALID_CLUSTER_SIZE, "CUDA_ERROR_INVALID_CLUSTER_SIZE",
     "cluster dimensions are not supported"},
};

const ErrorName* find(CUresult error) {
  for (const ErrorName& known : kErrors)
    if (known.error == error) return &known;
  return nullptr;
}

}  // namespace

void set_initialized() {
  g_initialized = true;
}
bool is_initialized() {
  return g_initialized;
}

CUcontext current_context() {
  return g_current;
}

CUresult ready() {
  if (!is_initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  if (g_current == nullptr || !FakeDevice::instance().has_context())
    return CUDA_ERROR_INVALID_CONTEXT;
  return FakeDevice::instance().error();
}

}  // namespace kiln::testing

using namespace kiln::testing;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuInit(unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!names_its_thread() || !listens()) return CUDA_ERROR_OPERATING_SYSTEM;
  set_initialized();
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  const ErrorName* known = find(error);
  *name = known == nullptr ? nullptr : known->name;
  return known == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  const ErrorName* known = find(error);
  *text = known == nullptr ? nullptr : known->text;
  return known == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = gpus();
  return is_initialized() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  if (!is_initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  return ordinal >= 0 && ordinal < gpus() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  std::snprintf(name, static_cast<size_t>(size), "Kiln fake GPU");
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* id, int size, CUdevice device) {
  std::snprintf(id, static_cast<size_t>(size), "0000:fa:1e.%d", device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice) {
  *bytes = static_cast<size_t>(FakeDevice::kMemoryBytes);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  const auto is = [&](int answer) {
    *value = answer;
    return CUDA_SUCCESS;
  };
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return is(9);
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return is(0);
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return is(FakeDevice::kSms);
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return is(FakeDevice::kL2Bytes);
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return is(FakeDevice::kSharedBytes);
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return is(FakeDevice::kMaxSharedBytes);
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return is(FakeDevice::kMaxSharedBytes + 1024);
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return is(1024);
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return is(2048);
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
      return is(65536);
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return is(kiln_fake::kWarpThreads);
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
      return is(1);
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      return is(1'000'000);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (!is_initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  FakeDevice::instance().retain();
  *context = context_of(device);
  return CUDA_SUCCESS;
}

// With the last owner go the context's memory and its fault.
CUresult cuDevicePrimaryCtxRelease(CUdevice) {
  if (!FakeDevice::instance().has_context()) return CUDA_ERROR_INVALID_CONTEXT;
  FakeDevice::instance().release();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  if (context != nullptr && !is_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
  g_current = context;
  return context == nullptr ? CUDA_SUCCESS : ready();
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = g_current;
  return is_initialized() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuCtxSynchronize() {
  const CUresult result = ready_outside_capture();
  return result == CUDA_SUCCESS ? FakeDevice::instance().wait_for_all() : result;
}

}  // extern "C"
