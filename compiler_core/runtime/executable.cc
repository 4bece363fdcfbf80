#include "compiler_core/runtime/executable.h"

#include <fmt/core.h>

#include <algorithm>
#include <list>
#include <vector>

#include "compiler_core/runtime/call_sizes.h"
#include "compiler_core/runtime/host_memory.h"

namespace kiln {
namespace {

constexpr size_t kMaxReplays = 16;  // sizes that are captured at once

}  // namespace

struct Executable::Impl {
  std::shared_ptr<const Device> device;
  Program program;
  ExecutableOptions options;
  std::vector<std::unique_ptr<const LoadedKernel>> kernels;

  // State of the call in progress; one at a time. Calls of the same sizes allocate nothing.
  CallSizes sizes;  // of the last call
  bool sized = false;
  DeviceBuffer arena, workspace;
  std::vector<DevicePtr> pointers;  // by buffer

  // The launches that are not empty, step by step. Written anew only where sizes or buffers change,
  // so that other cores find them in their caches.
  std::vector<Device::BoundLaunch> calls;  // their args lie in `args`, their dims in `sizes`
  std::vector<DevicePtr> args;
  std::vector<int> arg_buffers;   // what each of `args` is: a buffer
  std::vector<size_t> step_ends;  // into `calls`

  // The launches as captured for one set of sizes, and with what.
  struct Replay {
    std::vector<int64_t> symbols;
    std::unique_ptr<LaunchGraph> graph;
    std::vector<DevicePtr> pointers, outputs;
    DevicePtr workspace = 0;
  };
  std::list<Replay> replays;  // the last one used first; at most kMaxReplays

  Status size_for(std::span<const int64_t> dims, Stream stream) {
    if (sized && std::equal(dims.begin(), dims.end(), sizes.symbols.begin(), sizes.symbols.end()))
      return {};
    sized = false;
    TRY(sizes, sizes_of_call(program, dims));
    TRY_STATUS(provide_memory(stream));
    prepare_calls();
    sized = true;
    return {};
  }

  // Memory only grows, so that calls of mixed sizes settle. What the old memory was used for is
  // done when it has been given back: freeing waits for the device.
  Status provide_memory(Stream stream) {
    const MemoryNeed needs[] = {{"arena", sizes.arena_bytes, arena.bytes()},
                                {"workspace", sizes.workspace_bytes, workspace.bytes()}};
    if (!grows(needs)) return {};
    TRY(const bool capturing, device->is_capturing(stream));
    if (capturing)
      return fail(Code::kInvalidArgument,
                  "the program needs more memory for these sizes, which cannot be allocated while "
                  "the stream is captured: launch it once with them before");
    TRY(const int64_t available, device->free_bytes());
    TRY_STATUS(check_room(needs, available, device->place()));
    TRY_STATUS(arena.reserve(device, sizes.arena_bytes));
    return workspace.reserve(device, sizes.workspace_bytes);
  }

  void prepare_calls() {
    calls.clear();
    arg_buffers.clear();
    step_ends.clear();
    const std::vector<LaunchStep> steps = steps_of(program, sizes, device->most_side_by_side());
    for (const LaunchStep& step : steps)
      for (const size_t launch : step)
        arg_buffers.insert(arg_buffers.end(), program.launches[launch].args.begin(),
                           program.launches[launch].args.end());
    args.assign(arg_buffers.size(), 0);
    std::span<const DevicePtr> rest = args;
    for (const LaunchStep& step : steps) {
      for (const size_t i : step) {
        const Launch& launch = program.launches[i];
        calls.push_back({kernels[static_cast<size_t>(launch.kernel)].get(),
                         rest.first(launch.args.size()), sizes.launches[i].dims});
        rest = rest.subspan(launch.args.size());
      }
      step_ends.push_back(calls.size());
    }
  }

  // A tensor without elements may have no memory.
  Status check_pointer(DevicePtr pointer, size_t buffer, std::string_view what) const {
    const DevicePtr alignment = static_cast<DevicePtr>(device->alignment());
    if (pointer != 0 ? pointer % alignment == 0 : sizes.bytes[buffer] == 0) return {};
    return fail(Code::kInvalidArgument,
                pointer == 0 ? fmt::format("{} is null", what)
                             : fmt::format("{} is not {}-byte aligned", what, alignment));
  }

  Status check_pointers(std::span<const DevicePtr> inputs,
                        std::span<const DevicePtr> outputs) const {
    for (size_t i = 0; i < program.buffers.size(); ++i)
      if (const Buffer& buffer = program.buffers[i]; buffer.kind == Buffer::Kind::kInput)
        TRY_STATUS(check_pointer(inputs[static_cast<size_t>(buffer.index)], i, "an input buffer"));
    for (size_t i = 0; i < outputs.size(); ++i)
      TRY_STATUS(check_pointer(outputs[i], static_cast<size_t>(program.output_buffers[i]),
                               "an output buffer"));
    return {};
  }

  void bind_args() {
    for (size_t i = 0; i < args.size(); ++i) {
      const DevicePtr pointer = pointers[static_cast<size_t>(arg_buffers[i])];
      if (args[i] != pointer) args[i] = pointer;
    }
  }

  Status launch_all(std::span<const DevicePtr> outputs, Stream stream) const {
    const std::span<const Device::BoundLaunch> all = calls;
    size_t begin = 0;
    for (const size_t end : step_ends) {
      TRY_STATUS(device->launch_step(all.subspan(begin, end - begin), workspace.data(), stream));
      begin = end;
    }
    return copy_shared_outputs(outputs, stream);
  }

  // An output that is an input unchanged, or equal to an earlier output, has no buffer of its own.
  Status copy_shared_outputs(std::span<const DevicePtr> outputs, Stream stream) const {
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
    const auto launches = [&](Stream stream) { return launch_all(outputs, stream); };
    const auto found = std::find_if(replays.begin(), replays.end(), [&](const Replay& replay) {
      return replay.symbols == sizes.symbols;
    });
    if (found == replays.end()) {
      TRY(std::unique_ptr<LaunchGraph> graph, device->capture(launches));
      if (replays.size() == kMaxReplays) replays.pop_back();
      replays.push_front({sizes.symbols, std::move(graph), {}, {}, 0});
    } else {
      replays.splice(replays.begin(), replays, found);
      if (is_of_this_call(replays.front(), outputs)) return {};
      replays.front().pointers.clear();  // of nothing, should this fail
      TRY_STATUS(replays.front().graph->update(launches));
    }
    Replay& replay = replays.front();
    replay.pointers = pointers;
    replay.outputs.assign(outputs.begin(), outputs.end());
    replay.workspace = workspace.data();
    return {};
  }
};

Executable::Executable(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executable::Executable(Executable&&) noexcept = default;
Executable& Executable::operator=(Executable&&) noexcept = default;
Executable::~Executable() = default;

Result<Executable> Executable::load(std::shared_ptr<const Device> device, Program program,
                                    std::span<const Artifact> artifacts,
                                    ExecutableOptions options) {
  TRY_STATUS(check_program(program, artifacts));
  auto impl = std::make_unique<Impl>();
  for (size_t i = 0; i < artifacts.size(); ++i) {
    TRY(auto kernel, device->load(artifacts[i]));
    program.kernels[i].recipe = kernel->recipe();  // the fallback's, where that is what runs
    impl->kernels.push_back(std::move(kernel));
  }
  impl->device = std::move(device);
  impl->program = std::move(program);
  impl->options = options;
  impl->options.reduce_overhead = options.reduce_overhead && !impl->device->is_host();
  // Sizes with symbols wait for the first call that binds them.
  if (impl->program.symbols.empty()) TRY_STATUS(impl->size_for({}, nullptr));
  return Executable(std::move(impl));
}

const Program& Executable::program() const {
  return impl_->program;
}

const std::shared_ptr<const Device>& Executable::device() const {
  return impl_->device;
}

Status Executable::launch(std::span<const DevicePtr> inputs, std::span<const DevicePtr> outputs,
                          Stream stream, std::span<const int64_t> dims) const {
  TRY_STATUS(check_counts(impl_->program, inputs.size(), outputs.size()));
  TRY_STATUS(impl_->size_for(dims, stream));
  TRY_STATUS(impl_->check_pointers(inputs, outputs));
  place_buffers(impl_->program, inputs, outputs, impl_->arena.data(), impl_->sizes,
                impl_->pointers);
  impl_->bind_args();
  if (!impl_->options.reduce_overhead) return impl_->launch_all(outputs, stream);
  TRY_STATUS(impl_->capture(outputs));
  return impl_->replays.front().graph->replay(stream);
}

}  // namespace kiln
