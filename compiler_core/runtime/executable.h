// Executable: a loaded program with its arena, ready to run on the caller's buffers on one device.
// Owns kernels, arena and workspace; the caller's memory is borrowed until the stream has passed
// the launch. One call at a time, but for launches with an arena of the caller's.
#pragma once

#include <memory>
#include <span>

#include "compiler_core/program/program.h"
#include "compiler_core/runtime/device.h"

namespace kiln {

struct ExecutableOptions {
  // Launches are captured into a graph and replayed, one for each of the last few sizes; with other
  // pointers the graph is updated first. Without effect on a device that has no graphs.
  bool reduce_overhead = false;
  // Arena and workspace are allocated by the first launch that uses them, not by load(): for callers
  // who bring their own.
  bool lazy_memory = false;
};

// When launches of one call ran, by the device's clock.
struct LaunchTime {
  std::vector<size_t> launches;     // of the program; several ran side by side
  double begin_us = 0, end_us = 0;  // since the call's first began
};

class Executable {
 public:
  // `artifacts[i]` belongs to program.kernels[i]. Loads every kernel, allocates arena and workspace
  // when their sizes are known. kCorruption: an artifact is not its kernel's, or a launch's buffers
  // are not what its kernel reads and writes. kOverloaded, before anything is allocated: the device
  // has no room for it, with the bytes needed and available. Errors also as Device::load.
  static Result<Executable> load(std::shared_ptr<const Device> device, Program program,
                                 std::span<const Artifact> artifacts,
                                 ExecutableOptions options = {});
  Executable(Executable&&) noexcept;
  Executable& operator=(Executable&&) noexcept;
  ~Executable();

  const Program& program() const;
  const std::shared_ptr<const Device>& device() const;

  // Canonical inputs and outputs: dense row-major memory of the device, aligned as it says
  // (Device::alignment); 0 for a tensor without elements. `dims`: the values of the program's
  // symbols; arena and workspace grow with them. Puts the work on `stream`; launches of one object
  // must be ordered by their streams, since they share arena and workspace. kInvalidArgument: a
  // wrong count of buffers, a null or badly aligned one, an unbound symbol or one outside its
  // range, or memory has to grow while `stream` is captured. kOverloaded as load(). Errors also as
  // LoadedKernel::launch.
  Status launch(std::span<const DevicePtr> inputs, std::span<const DevicePtr> outputs,
                Stream stream, std::span<const int64_t> dims = {}) const;

  // The same, one launch after the other as launch() does them, and when each ran. Waits until all
  // is done. What is measured between two launches is on the device too: on a GPU an event costs a
  // microsecond or so, which counts to the launch before it.
  Result<std::vector<LaunchTime>> profile(std::span<const DevicePtr> inputs,
                                          std::span<const DevicePtr> outputs, Stream stream,
                                          std::span<const int64_t> dims = {}) const;

  // The same with memory of the caller's for arena and workspace: `scratch_bytes` for these sizes,
  // kScratchAlignment aligned, the launch's own until the stream has passed it. Allocates nothing on
  // the device and captures nothing. Re-entrant where the device is (Device: on the CPU one thread
  // at a time launches). Errors as above.
  Result<int64_t> scratch_bytes(std::span<const int64_t> dims = {}) const;
  Status launch(std::span<const DevicePtr> inputs, std::span<const DevicePtr> outputs,
                DevicePtr scratch, Stream stream, std::span<const int64_t> dims) const;
  static constexpr int64_t kScratchAlignment = 256;

 private:
  struct Impl;
  explicit Executable(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
