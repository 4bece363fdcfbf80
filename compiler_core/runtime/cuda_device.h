// CudaDevice: one NVIDIA GPU through the driver API. libcuda is opened at run time, so that every
// binary starts on a machine without it.
//
// open() retains the device's primary context, the one PyTorch and the CUDA runtime use, so the
// caller's own pointers and streams are valid here; every function makes it current on the calling
// thread first. Memory is plain cuMemAlloc, 256-byte aligned. Streams made here do not wait for the
// default stream, nor it for them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "compiler_core/runtime/device.h"

namespace kiln {

using CudaStream = Stream;  // CUstream

// In the place of a library's file: no library is called.
inline constexpr std::string_view kNoLibraries = "none";

// As the device and its driver describe themselves.
struct CudaFacts {
  int ordinal = 0;
  std::string name;    // "NVIDIA H200"
  std::string bus_id;  // "0000:1b:00.0": names the card for every process on this host
  int capability = 0;  // 90 for 9.0
  int sms = 0;
  int driver = 0;  // 13000: the newest CUDA whose cubins it loads
  int64_t l2_bytes = 0;
  int64_t memory_bytes = 0;
  int max_shared_bytes = 0;  // dynamic, a block, opted in
  // "cuda:sm_90a", its name, its SMs, "cuda-13".
  Target target() const;
};

class CurrentContext;

class CudaDevice : public Device {
 public:
  // kUnsupported: no libcuda, or a driver that is too old, and says which; kNotFound: no such
  // device. `libcuda`: the library to open; empty: libcuda.so.1. `libcublaslt`: where a program
  // that calls it finds it (library_call.h: `file`).
  static Result<std::shared_ptr<const CudaDevice>> open(int ordinal = 0,
                                                        const std::string& libcuda = {},
                                                        const std::string& libcublaslt = {});
  // The same device's facts alone, without a context, which takes the longest. Errors as open().
  static Result<CudaFacts> probe(int ordinal = 0, const std::string& libcuda = {});
  ~CudaDevice() override;

  const CudaFacts& facts() const;
  // Makes the device's context the calling thread's, as long as the result lives.
  Result<CurrentContext> enter() const;

  Target target() const override { return facts().target(); }
  std::string_view place() const override { return "the GPU"; }
  int ordinal() const override { return facts().ordinal; }
  int64_t alignment() const override { return 16; }
  int64_t memory_bytes() const override { return facts().memory_bytes; }
  Result<int64_t> free_bytes() const override;
  int64_t cache_bytes() const override { return facts().l2_bytes; }

  Result<DevicePtr> allocate(int64_t bytes) const override;
  void release(DevicePtr memory) const override;
  Status copy_to_device(DevicePtr to, std::span<const uint8_t> from) const override;
  Status copy_to_host(std::span<uint8_t> to, DevicePtr from) const override;
  Status copy_on_device(DevicePtr to, DevicePtr from, int64_t bytes, Stream stream) const override;
  Status fill(DevicePtr memory, uint8_t value, int64_t bytes, Stream stream) const override;

  Result<Stream> create_stream() const override;
  void destroy_stream(Stream stream) const override;
  Status synchronize(Stream stream) const override;
  Result<bool> is_capturing(Stream stream) const override;
  // Whether all that was put on the stream is done.
  Result<bool> is_done(Stream stream) const;
  Result<std::unique_ptr<Event>> create_event() const override;
  Result<std::unique_ptr<LaunchGraph>> capture(
      const std::function<Status(Stream)>& launches) const override;

  Fault fault() const override;
  Clocks clocks() const override;  // zero where NVML is not there to ask

  struct Impl;  // of this folder: the driver's functions, the context
  const Impl& impl() const { return *impl_; }

 private:
  Result<std::unique_ptr<const LoadedKernel>> load_as_told(const Artifact& artifact) const override;
  explicit CudaDevice(std::unique_ptr<Impl> impl);
  std::shared_ptr<const CudaDevice> self() const {
    return std::static_pointer_cast<const CudaDevice>(shared_from_this());
  }
  std::unique_ptr<Impl> impl_;
};

// A GPU's context while it is the calling thread's. Whoever else uses GPUs in this thread, as PyTorch does
// with another one, finds the context that was there before.
class [[nodiscard]] CurrentContext {
 public:
  // `device`: null where nothing is to be given back.
  CurrentContext(const CudaDevice::Impl* device, void* before) : device_(device), before_(before) {}
  CurrentContext(CurrentContext&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)), before_(other.before_) {}
  CurrentContext& operator=(CurrentContext&&) = delete;
  ~CurrentContext();

 private:
  const CudaDevice::Impl* device_;
  void* before_;
};

}  // namespace kiln
