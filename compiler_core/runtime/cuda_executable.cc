#include "compiler_core/runtime/cuda_executable.h"

#include <fmt/core.h>

#include <algorithm>
#include <list>
#include <vector>

#include "compiler_core/runtime/call_sizes.h"
#include "compiler_core/runtime/cuda_graph.h"
#include "compiler_core/runtime/host_memory.h"
#include "compiler_core/runtime/program_layout.h"

namespace kiln {
namespace {

constexpr DevicePtr kAlignment = 16;

constexpr size_t kMaxReplays = 16;  // sizes that are captured at once

// A tensor without elements may have no memory.
Status check_pointer(DevicePtr pointer, int64_t bytes, std::string_view what) {
  if (pointer != 0 ? pointer % kAlignment == 0 : bytes == 0) return {};
  return fail(Code::kInvalidArgument,
              fmt::format("{} is {}", what, pointer == 0 ? "null" : "not 16-byte aligned"));
}

Status grow(const std::shared_ptr<const CudaDevice>& device, int64_t bytes, DeviceBuffer& buffer) {
  if (bytes <= buffer.bytes()) return {};
  buffer = DeviceBuffer();  // first, so that old and new never exist together
  TRY(buffer, DeviceBuffer::allocate(device, bytes));
  return {};
}

}  // namespace

struct CudaExecutable::Impl {
  std::shared_ptr<const CudaDevice> device;
  Program program;
  Options options;
  std::vector<CudaKernel> kernels;

  // Of one call at a time.
  CallSizes sizes;  // of the last call
  bool sized = false;
  DeviceBuffer arena, workspace;
  std::vector<DevicePtr> pointers;  // by buffer
  std::vector<DevicePtr> args;

  // The launches as captured for one set of sizes, and with what.
  struct Replay {
    std::vector<int64_t> symbols;
    CudaGraph graph;
    std::vector<DevicePtr> pointers, outputs;
    DevicePtr workspace = 0;
  };
  std::list<Replay> replays;  // the last one used first; at most kMaxReplays

  // Memory only grows, so that calls of mixed sizes settle. What the old memory was used for is
  // done when it has been given back: freeing waits for the device.
  Status size_for(std::span<const int64_t> dims, CudaStream stream) {
    if (sized && std::equal(dims.begin(), dims.end(), sizes.symbols.begin(), sizes.symbols.end()))
      return {};
    sized = false;
    TRY(sizes, sizes_of_call(program, dims));
    const MemoryNeed needs[] = {{"arena", sizes.arena_bytes, arena.bytes()},
                                {"workspace", sizes.workspace_bytes, workspace.bytes()}};
    if (grows(needs)) {
      TRY(const bool capturing, device->is_capturing(stream));
      if (capturing)
        return fail(
            Code::kInvalidArgument,
            "the program needs more memory for these sizes, which cannot be allocated while "
            "the stream is captured: launch it once with them before");
      TRY(const int64_t available, device->free_bytes());
      TRY_STATUS(check_room(needs, available, "the GPU"));
      TRY_STATUS(grow(device, sizes.arena_bytes, arena));
      TRY_STATUS(grow(device, sizes.workspace_bytes, workspace));
    }
    sized = true;
    return {};
  }

  Status check_pointers(std::span<const DevicePtr> inputs,
                        std::span<const DevicePtr> outputs) const {
    for (size_t i = 0; i < program.buffers.size(); ++i)
      if (const Buffer& buffer = program.buffers[i]; buffer.kind == Buffer::Kind::kInput)
        TRY_STATUS(check_pointer(inputs[static_cast<size_t>(buffer.index)], sizes.bytes[i],
                                 "an input buffer"));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const size_t buffer = static_cast<size_t>(program.output_buffers[i]);
      TRY_STATUS(check_pointer(outputs[i], sizes.bytes[buffer], "an output buffer"));
    }
    return {};
  }

  Status launch_all(std::span<const DevicePtr> outputs, CudaStream stream) {
    for (size_t i = 0; i < program.launches.size(); ++i) {
      const Launch& launch = program.launches[i];
      if (sizes.launches[i].empty) continue;
      args.clear();
      for (const int buffer : launch.args) args.push_back(pointers[static_cast<size_t>(buffer)]);
      const CudaKernel& kernel = kernels[static_cast<size_t>(launch.kernel)];
      TRY_STATUS(kernel.launch(args, workspace.data(), sizes.launches[i].dims, stream));
    }
    return copy_shared_outputs(outputs, stream);
  }

  // An output that is an input unchanged, or equal to an earlier output, has no buffer of its own.
  Status copy_shared_outputs(std::span<const DevicePtr> outputs, CudaStream stream) const {
    for (size_t i = 0; i < outputs.size(); ++i) {
      const size_t buffer = static_cast<size_t>(program.output_buffers[i]);
      if (pointers[buffer] == outputs[i] || sizes.bytes[buffer] == 0) continue;
      TRY_STATUS(device->copy_on_device(outputs[i], pointers[buffer], sizes.bytes[buffer], stream));
    }
    return {};
  }

  bool is_of_this_call(const Replay& replay, std::span<const DevicePtr> outputs) const {
    return replay.pointers == pointers && replay.workspace == workspace.data() &&
           std::equal(outputs.begin(), outputs.end(), replay.outputs.begin(), replay.outputs.end());
  }

  // Makes replays.front() be of this call's sizes and pointers.
  Status capture(std::span<const DevicePtr> outputs) {
    const auto launches = [&](CudaStream stream) { return launch_all(outputs, stream); };
    const auto found = std::find_if(replays.begin(), replays.end(), [&](const Replay& replay) {
      return replay.symbols == sizes.symbols;
    });
    if (found == replays.end()) {
      TRY(CudaGraph graph, CudaGraph::capture(device, launches));
      if (replays.size() == kMaxReplays) replays.pop_back();
      replays.push_front({sizes.symbols, std::move(graph), {}, {}, 0});
    } else {
      replays.splice(replays.begin(), replays, found);
      if (is_of_this_call(replays.front(), outputs)) return {};
      replays.front().pointers.clear();  // of nothing, should this fail
      TRY_STATUS(replays.front().graph.update(launches));
    }
    Replay& replay = replays.front();
    replay.pointers = pointers;
    replay.outputs.assign(outputs.begin(), outputs.end());
    replay.workspace = workspace.data();
    return {};
  }
};

CudaExecutable::CudaExecutable(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudaExecutable::CudaExecutable(CudaExecutable&&) noexcept = default;
CudaExecutable& CudaExecutable::operator=(CudaExecutable&&) noexcept = default;
CudaExecutable::~CudaExecutable() = default;

Result<CudaExecutable> CudaExecutable::load(std::shared_ptr<const CudaDevice> device,
                                            Program program, std::span<const Artifact> artifacts,
                                            Options options) {
  TRY_STATUS(check_program(program, artifacts));
  auto impl = std::make_unique<Impl>();
  for (const Artifact& artifact : artifacts) {
    TRY(CudaKernel kernel, CudaKernel::load(device, artifact));
    impl->kernels.push_back(std::move(kernel));
  }
  impl->device = std::move(device);
  impl->program = std::move(program);
  impl->options = options;
  // Sizes with symbols wait for the first call that binds them.
  if (impl->program.symbols.empty()) TRY_STATUS(impl->size_for({}, nullptr));
  return CudaExecutable(std::move(impl));
}

const Program& CudaExecutable::program() const {
  return impl_->program;
}

const CudaDevice& CudaExecutable::device() const {
  return *impl_->device;
}

Status CudaExecutable::launch(std::span<const DevicePtr> inputs, std::span<const DevicePtr> outputs,
                              CudaStream stream, std::span<const int64_t> dims) const {
  TRY_STATUS(check_counts(impl_->program, inputs.size(), outputs.size()));
  TRY_STATUS(impl_->size_for(dims, stream));
  TRY_STATUS(impl_->check_pointers(inputs, outputs));
  place_buffers<DevicePtr>(impl_->program, inputs, outputs, impl_->arena.data(), impl_->sizes,
                           impl_->pointers);
  if (!impl_->options.reduce_overhead) return impl_->launch_all(outputs, stream);
  TRY_STATUS(impl_->capture(outputs));
  return impl_->replays.front().graph.replay(stream);
}

}  // namespace kiln
