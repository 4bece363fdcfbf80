// CudaDevice: one NVIDIA GPU through the driver API. libcuda is opened at run time, so that every
// binary starts on a machine without it; cuda.h stays inside this folder's .cc files.
//
// open() retains the device's primary context, the one PyTorch and the CUDA runtime use, so the
// caller's own pointers and streams are valid here. Immutable; shared by threads: every function
// makes the context current on the calling thread first. Memory is plain cuMemAlloc. Streams made
// here do not wait for the default stream, nor it for them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "compiler_core/base/result.h"
#include "compiler_core/program/target.h"

namespace kiln {

using DevicePtr = uint64_t;  // CUdeviceptr
using CudaStream = void*;    // CUstream; null is the default stream

// As the device and its driver describe themselves.
struct CudaFacts {
  int ordinal = 0;
  std::string name;    // "NVIDIA H200"
  std::string bus_id;  // "0000:1b:00.0": names the card on this host, whoever sees it
  int capability = 0;  // 90 for 9.0
  int sms = 0;
  int driver = 0;  // 13000: the newest CUDA whose cubins it loads
  int64_t l2_bytes = 0;
  int64_t memory_bytes = 0;
  int max_shared_bytes = 0;  // dynamic, a block, opted in
  // "cuda:sm_90a", its name, its SMs, "cuda-13".
  Target target() const;
};

class CudaDevice {
 public:
  // kUnsupported: built without CUDA, no libcuda, or a driver that is too old, and says which;
  // kNotFound: no such device. `libcuda`: the library to open; empty: libcuda.so.1.
  static Result<std::shared_ptr<const CudaDevice>> open(int ordinal = 0,
                                                        const std::string& libcuda = {});
  // The same device's facts alone, without a context, which takes the longest. Errors as open().
  static Result<CudaFacts> probe(int ordinal = 0, const std::string& libcuda = {});
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;

  const CudaFacts& facts() const;

  // kUnavailable (out of memory, a sticky fault) from all of these. A device that has faulted stays
  // so for the life of the process: is_lost() tells.
  Result<DevicePtr> allocate(int64_t bytes) const;
  void release(DevicePtr memory) const;
  // What the driver could give out now, to this process or another.
  Result<int64_t> free_bytes() const;
  // Both block until the bytes are there.
  Status copy_to_device(DevicePtr to, std::span<const uint8_t> from) const;
  Status copy_to_host(std::span<uint8_t> to, DevicePtr from) const;
  Status copy_on_device(DevicePtr to, DevicePtr from, int64_t bytes, CudaStream stream) const;
  Status fill(DevicePtr memory, uint8_t value, int64_t bytes, CudaStream stream) const;
  Status synchronize(CudaStream stream) const;  // what faulted on it is reported here
  // Whether all that was put on the stream is done.
  Result<bool> is_done(CudaStream stream) const;
  // Whether somebody captures the stream, so that nothing may be allocated.
  Result<bool> is_capturing(CudaStream stream) const;
  Result<CudaStream> create_stream() const;
  void destroy_stream(CudaStream stream) const;
  Status make_current() const;
  bool is_lost() const { return fault() != Fault::kNone; }
  // What the device was lost to, as far as the driver says.
  enum class Fault {
    kNone,
    kAddress,  // an illegal address
    kKernel,   // something else that no kernel may do: a misaligned access, an illegal instruction
    kOther,    // a launch that failed without a reason, the hardware, the driver
  };
  Fault fault() const;
  // SM clock in MHz now, and whether the card is slowing itself down (power, heat); zero and false
  // when NVML is not there to ask.
  struct Clocks {
    int sm_mhz = 0;
    bool throttled = false;
  };
  Clocks clocks() const;

  struct Impl;  // of this folder: the driver's functions, the context
  const Impl& impl() const { return *impl_; }

 private:
  explicit CudaDevice(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Device memory that is given back. Movable.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  static Result<DeviceBuffer> allocate(std::shared_ptr<const CudaDevice> device, int64_t bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();
  DevicePtr data() const { return data_; }  // 256-byte aligned; 0 when it has no bytes
  int64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<const CudaDevice> device_;
  DevicePtr data_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace kiln
