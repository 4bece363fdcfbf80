// Device: a place where kernels run: this machine's CPU (cpu_device.h) or an NVIDIA GPU
// (cuda_device.h). It has memory, streams, events, and loads artifacts; Executable and the worker's
// verification and timing are written over it alone.
//
// Threads: immutable; any thread may call any function. Work on one stream is done in order. The
// CPU has one stream, the null one: its work is done when the call returns, and one thread at a
// time launches there.
// Ownership: buffers, kernels, events and graphs hold their device. The caller's memory is borrowed
// until the stream has passed the call.
// Errors: kUnavailable where a function says nothing else: out of memory, or a device that has
// faulted and stays so for the life of the process (is_lost()).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "compiler_core/base/result.h"
#include "compiler_core/program/artifact.h"
#include "compiler_core/program/target.h"

namespace kiln {

using DevicePtr = uint64_t;  // an address in the device's memory; on the CPU a pointer's value
using Stream = void*;        // CUstream; null is the default stream

inline DevicePtr device_ptr(const void* host) {
  return reinterpret_cast<DevicePtr>(host);
}

inline std::vector<DevicePtr> device_ptrs(std::span<void* const> host) {
  std::vector<DevicePtr> pointers;
  for (const void* pointer : host) pointers.push_back(device_ptr(pointer));
  return pointers;
}

// The inputs of a launch that a kernel may read early, by their numbers. Inputs from the 64th on are
// never among them.
class ReadyInputs {
 public:
  static ReadyInputs all() { return ReadyInputs(~uint64_t{0}); }
  ReadyInputs() = default;
  void add(size_t input) { bits_ |= input < 64 ? uint64_t{1} << input : 0; }
  bool has(size_t input) const { return input < 64 && (bits_ >> input & 1) != 0; }

 private:
  explicit ReadyInputs(uint64_t bits) : bits_(bits) {}
  uint64_t bits_ = 0;
};

// How a launch stands to what is in front of it on the stream.
struct LaunchOrder {
  // The inputs that its kernels may read before the kernel in front of them has ended.
  ReadyInputs ready = {};
  // The launch starts when all in front of it has ended, even if its kernel could wait itself. Kernels
  // behind it can rely on that too.
  bool behind_all = false;
};

// A kernel ready to run (Device::load). Immutable; threads may launch it at once on their own
// streams.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
  virtual const Recipe& recipe() const = 0;
  // Puts every phase on `stream`. `args`: inputs, then outputs. `workspace`: at least the recipe's
  // bytes, or 0 when it needs none. kInvalidArgument: the device refuses this launch.
  // REQUIRES: one buffer an argument; `dims` binds every symbol of the recipe.
  virtual Status launch(std::span<const DevicePtr> args, DevicePtr workspace,
                        std::span<const int64_t> dims, Stream stream,
                        const LaunchOrder& order) const = 0;
};

// A point in a stream's work, for timing on the device's own clock. One thread at a time.
class Event {
 public:
  virtual ~Event() = default;
  virtual Status record(Stream stream) const = 0;
  // Microseconds from `start`, an event of the same device. REQUIRES: both are done (synchronize).
  virtual Result<double> us_since(const Event& start) const = 0;
};

// Launches captured once and replayed as one (a CUDA graph). One thread at a time.
class LaunchGraph {
 public:
  virtual ~LaunchGraph() = default;
  // The same launches with other arguments, which is cheaper than to capture them anew.
  virtual Status update(const std::function<Status(Stream)>& launches) = 0;
  virtual Status replay(Stream stream) const = 0;
};

class Device : public std::enable_shared_from_this<Device> {
 public:
  Device() = default;
  Device(const Device&) = delete;
  virtual ~Device() = default;

  virtual Target target() const = 0;
  virtual std::string_view place() const = 0;  // in messages: "this machine", "the GPU"
  virtual int ordinal() const { return 0; }    // among the GPUs of this process
  virtual int64_t alignment() const = 0;       // of callers' buffers, in bytes
  virtual int64_t memory_bytes() const = 0;    // all there is
  virtual Result<int64_t> free_bytes() const = 0;
  // The L2 of the cores or SMs that a launch uses: a bench that is to find its data in memory
  // works on a multiple of it.
  virtual int64_t cache_bytes() const = 0;
  // Whether the caller's own pointers are addresses of this device's memory.
  virtual bool is_host() const { return false; }

  // 64-byte aligned at least, not initialised. REQUIRES: bytes > 0.
  virtual Result<DevicePtr> allocate(int64_t bytes) const = 0;
  virtual void release(DevicePtr memory) const = 0;
  // Both block until the bytes are there.
  virtual Status copy_to_device(DevicePtr to, std::span<const uint8_t> from) const = 0;
  virtual Status copy_to_host(std::span<uint8_t> to, DevicePtr from) const = 0;
  virtual Status copy_on_device(DevicePtr to, DevicePtr from, int64_t bytes,
                                Stream stream) const = 0;
  virtual Status fill(DevicePtr memory, uint8_t value, int64_t bytes, Stream stream) const = 0;

  virtual Result<Stream> create_stream() const = 0;
  virtual void destroy_stream(Stream stream) const = 0;
  virtual Status synchronize(Stream stream) const = 0;  // what faulted on it is reported here
  // Whether somebody captures the stream, so that nothing may be allocated.
  virtual Result<bool> is_capturing(Stream) const { return false; }
  virtual Result<std::unique_ptr<Event>> create_event() const = 0;
  // Captures the work that `launches` puts on the stream it is given; its errors come through.
  // kUnsupported: a device without graphs; launch as usual there.
  virtual Result<std::unique_ptr<LaunchGraph>> capture(
      const std::function<Status(Stream)>& launches) const = 0;

  // Everything that costs time once is paid here, not by the first launch. kCorruption: the
  // binary's digest is not artifact.digest, and nothing of it was loaded. kInvalidArgument: the
  // loader refuses it, an entry is missing, or it asks for more than the device has. kUnsupported:
  // it calls a library that is missing or has another version, and has no fallback; with one, that
  // is loaded, and LoadedKernel::recipe() is the fallback's.
  Result<std::unique_ptr<const LoadedKernel>> load(const Artifact& artifact) const;

  // Launches that touch nothing of each other's results, as one step.
  struct BoundLaunch {
    const LoadedKernel* kernel;  // loaded by this device
    std::span<const DevicePtr> args;
    std::span<const int64_t> dims;
    LaunchOrder order = {};
  };
  // How many launches of one phase and without a workspace a step may have.
  virtual size_t most_side_by_side() const { return 1; }
  // REQUIRES: as LoadedKernel::launch; `workspace` is enough for the launch, where there is one.
  virtual Status launch_step(std::span<const BoundLaunch> step, DevicePtr workspace,
                             Stream stream) const;

  // Why the device was lost, as far as it says.
  enum class Fault {
    kNone,
    kAddress,  // an illegal address
    kKernel,   // something else that no kernel may do: a misaligned access, an illegal instruction
    kOther,    // a launch that failed without a reason, the hardware, the driver
  };
  virtual Fault fault() const { return Fault::kNone; }
  bool is_lost() const { return fault() != Fault::kNone; }

  // The clock in MHz now, and whether the device is slowing itself down (power, heat); zero and
  // false where that is not known.
  struct Clocks {
    int sm_mhz = 0;
    bool throttled = false;
  };
  virtual Clocks clocks() const { return {}; }

 private:
  // By artifact.recipe; the fallback is load()'s to take.
  virtual Result<std::unique_ptr<const LoadedKernel>> load_as_told(
      const Artifact& artifact) const = 0;
};

// Device memory that is given back. Movable; one owner.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  static Result<DeviceBuffer> allocate(std::shared_ptr<const Device> device, int64_t bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  // Grows to at least `bytes`: old and new memory never exist together, and what was in it is lost.
  Status reserve(const std::shared_ptr<const Device>& device, int64_t bytes);
  DevicePtr data() const { return data_; }  // 0 when it has no bytes
  int64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<const Device> device_;
  DevicePtr data_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace kiln
