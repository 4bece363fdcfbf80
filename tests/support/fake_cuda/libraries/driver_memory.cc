// libfake_cuda.so: device memory, which is the host's own.
#include <cstring>

#include "tests/support/fake_cuda/libraries/fake_driver.h"

namespace kiln::testing {
namespace {

void* at(CUdeviceptr memory) {
  return reinterpret_cast<void*>(memory);
}

// A copy that the host waits for, through the default stream.
CUresult copy_and_wait(void* to, const void* from, size_t bytes) {
  return FakeDevice::instance().wait(FakeDevice::instance().submit([=] {
    std::memcpy(to, from, bytes);
    return CUDA_SUCCESS;
  }));
}

}  // namespace
}  // namespace kiln::testing

using namespace kiln::testing;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuMemAlloc(CUdeviceptr* memory, size_t bytes) {
  const CUresult result = ready_outside_capture();
  return result == CUDA_SUCCESS ? FakeDevice::instance().allocate(bytes, memory) : result;
}

CUresult cuMemFree(CUdeviceptr memory) {
  const CUresult result = ready_outside_capture();
  if (result != CUDA_SUCCESS || memory == 0) return result;
  return FakeDevice::instance().free(memory);
}

CUresult cuMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = FakeDevice::instance().free_bytes();
  *total_bytes = static_cast<size_t>(FakeDevice::kMemoryBytes);
  return ready();
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  const CUresult result = ready_outside_capture();
  if (result != CUDA_SUCCESS) return result;
  if (!FakeDevice::instance().owns(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return copy_and_wait(at(to), from, bytes);
}

CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  const CUresult result = ready_outside_capture();
  if (result != CUDA_SUCCESS) return result;
  if (!FakeDevice::instance().owns(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return copy_and_wait(to, at(from), bytes);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  FakeDevice& device = FakeDevice::instance();
  if (!device.owns(to, bytes) || !device.owns(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, {FakeNode::Kind::kCopy, [=] {
                            std::memmove(at(to), at(from), bytes);
                            return CUDA_SUCCESS;
                          }});
}

CUresult cuMemsetD8Async(CUdeviceptr memory, unsigned char value, size_t bytes, CUstream stream) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  if (!FakeDevice::instance().owns(memory, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, {FakeNode::Kind::kFill, [=] {
                            std::memset(at(memory), value, bytes);
                            return CUDA_SUCCESS;
                          }});
}

}  // extern "C"
