// BoundCall: what one call of a program needs besides memory: its sizes, and its launches with their
// arguments, step by step. Made anew only where sizes or buffers change, so that calls of the same
// sizes allocate nothing and other cores find the arguments in their caches. One call at a time.
// Private to this folder.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "compiler_core/runtime/call_sizes.h"
#include "compiler_core/runtime/device.h"

namespace kiln {

using LoadedKernels = std::vector<std::unique_ptr<const LoadedKernel>>;

class BoundCall {
 public:
  // Both outlive this. `kernels`: one for each of the program's.
  BoundCall(const Program& program, const LoadedKernels& kernels, const Device& device)
      : program_(program), kernels_(kernels), device_(device), kept_(kept_buffers(program)) {}

  bool is_sized_for(std::span<const int64_t> dims) const;
  // Errors as sizes_of_call().
  Status size_for(std::span<const int64_t> dims);
  const CallSizes& sizes() const { return sizes_; }

  // kInvalidArgument: a null or badly aligned pointer. REQUIRES: size_for(), check_counts().
  Status bind(std::span<const DevicePtr> inputs, std::span<const DevicePtr> outputs,
              DevicePtr arena);
  const std::vector<DevicePtr>& pointers() const { return pointers_; }  // by buffer

  // `after_step`: called when a step's launches are on the stream; its error ends the call.
  // REQUIRES: bind(), with these outputs.
  using AfterStep = std::function<Status()>;
  Status launch(std::span<const DevicePtr> outputs, DevicePtr workspace, Stream stream,
                const AfterStep& after_step = {}) const;
  // The program's launches, by steps.
  const std::vector<LaunchStep>& steps() const { return steps_; }

 private:
  void prepare();
  void note_early_reads();
  void find_ready(std::span<const DevicePtr> outputs);
  Status check_pointer(DevicePtr pointer, size_t buffer, std::string_view what) const;
  Status check_pointers(std::span<const DevicePtr> inputs,
                        std::span<const DevicePtr> outputs) const;
  Status copy_kept_inputs(Stream stream) const;
  Status copy_shared_outputs(std::span<const DevicePtr> outputs, Stream stream) const;

  const Program& program_;
  const LoadedKernels& kernels_;
  const Device& device_;
  const std::vector<KeptBuffer> kept_;

  CallSizes sizes_;  // of the last call
  bool sized_ = false;
  std::vector<DevicePtr> pointers_;
  // The launches that are not empty.
  std::vector<Device::BoundLaunch> calls_;  // their args lie in args_, their dims in sizes_
  std::vector<DevicePtr> args_;
  std::vector<int> arg_buffers_;  // what each of args_ is: a buffer
  std::vector<LaunchStep> steps_;
  // Inputs of the program that a launch reads before the one in front of it has ended, if it may.
  struct EarlyRead {
    size_t call, input, buffer;
  };
  std::vector<EarlyRead> early_reads_;
};

}  // namespace kiln
