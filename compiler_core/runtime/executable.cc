#include "compiler_core/runtime/executable.h"

#include <fmt/core.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <optional>
#include <vector>

#include "compiler_core/runtime/bound_call.h"
#include "compiler_core/runtime/host_memory.h"
#include "compiler_core/runtime/nvtx.h"

namespace kiln {
namespace {

constexpr size_t kMaxReplays = 16;  // sizes that are captured at once
constexpr size_t kMaxIdle = 8;      // calls that are kept for re-entrant launches

// Where the workspace lies in scratch of the caller's.
int64_t workspace_offset(const CallSizes& sizes) {
  constexpr int64_t kAlignment = Executable::kScratchAlignment;
  return (sizes.arena_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// "matmul: cuda.matmul tile=128", of each launch of the step.
std::string name_of(const Program& program, const LaunchStep& step) {
  std::string name;
  for (const size_t launch : step) {
    const ProgramKernel& kernel =
        program.kernels[static_cast<size_t>(program.launches[launch].kernel)];
    name += fmt::format("{}{}: {}", name.empty() ? "" : "; ", kernel.family, kernel.schedule);
  }
  return name;
}

}  // namespace

struct Executable::Impl {
  std::shared_ptr<const Device> device;
  Program program;
  ExecutableOptions options;
  LoadedKernels kernels;

  // The call in progress of launches that share arena and workspace; one at a time.
  std::optional<BoundCall> own;
  DeviceBuffer arena, workspace;

  // Calls with scratch of the caller's: each is taken by one launch at a time. The last one used
  // comes last; at most kMaxIdle.
  std::mutex idle_mu;
  std::vector<std::unique_ptr<BoundCall>> idle;

  // The launches as captured for one set of sizes, and with what.
  struct Replay {
    std::vector<int64_t> symbols;
    std::unique_ptr<LaunchGraph> graph;
    std::vector<DevicePtr> pointers, outputs;
    DevicePtr workspace = 0;
  };
  std::list<Replay> replays;  // the last one used first; at most kMaxReplays

  Status size_for(std::span<const int64_t> dims, Stream stream) {
    if (own->is_sized_for(dims)) return {};
    TRY_STATUS(own->size_for(dims));
    Status provided = provide_memory(stream);
    if (!provided) own.emplace(program, kernels, *device);
    return provided;
  }

  // Memory only grows, so that calls of mixed sizes settle. What the old memory was used for is
  // done when it has been given back: freeing waits for the device.
  Status provide_memory(Stream stream) {
    const CallSizes& sizes = own->sizes();
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

  // An idle call of these sizes if there is one, else another or a new one, sized for them.
  Result<std::unique_ptr<BoundCall>> take(std::span<const int64_t> dims) {
    std::unique_ptr<BoundCall> call;
    {
      std::lock_guard lock(idle_mu);
      const auto found = std::find_if(idle.rbegin(), idle.rend(),
                                      [&](const auto& each) { return each->is_sized_for(dims); });
      if (found != idle.rend()) {
        call = std::move(*found);
        idle.erase(std::next(found).base());
      } else if (idle.size() == kMaxIdle) {
        call = std::move(idle.front());
        idle.erase(idle.begin());
      }
    }
    if (!call) call = std::make_unique<BoundCall>(program, kernels, *device);
    TRY_STATUS(call->size_for(dims));
    return call;
  }

  void give_back(std::unique_ptr<BoundCall> call) {
    std::lock_guard lock(idle_mu);
    if (idle.size() < kMaxIdle) idle.push_back(std::move(call));
  }

  bool is_of_this_call(const Replay& replay, std::span<const DevicePtr> outputs) const {
    return replay.pointers == own->pointers() && replay.workspace == workspace.data() &&
           std::equal(outputs.begin(), outputs.end(), replay.outputs.begin(), replay.outputs.end());
  }

  // Makes replays.front() be of this call's sizes and pointers.
  Status capture(std::span<const DevicePtr> outputs) {
    const auto launches = [&](Stream stream) {
      return own->launch(outputs, workspace.data(), stream);
    };
    const auto found = std::find_if(replays.begin(), replays.end(), [&](const Replay& replay) {
      return replay.symbols == own->sizes().symbols;
    });
    if (found == replays.end()) {
      TRY(std::unique_ptr<LaunchGraph> graph, device->capture(launches));
      if (replays.size() == kMaxReplays) replays.pop_back();
      replays.push_front({own->sizes().symbols, std::move(graph), {}, {}, 0});
    } else {
      replays.splice(replays.begin(), replays, found);
      if (is_of_this_call(replays.front(), outputs)) return {};
      replays.front().pointers.clear();  // of nothing, should this fail
      TRY_STATUS(replays.front().graph->update(launches));
    }
    Replay& replay = replays.front();
    replay.pointers = own->pointers();
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
  impl->own.emplace(impl->program, impl->kernels, *impl->device);
  // Sizes with symbols wait for the first call that binds them.
  if (impl->program.symbols.empty() && !options.lazy_memory)
    TRY_STATUS(impl->size_for({}, nullptr));
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
  TRY_STATUS(impl_->own->bind(inputs, outputs, impl_->arena.data()));
  if (!impl_->options.reduce_overhead)
    return impl_->own->launch(outputs, impl_->workspace.data(), stream);
  TRY_STATUS(impl_->capture(outputs));
  return impl_->replays.front().graph->replay(stream);
}

Result<std::vector<LaunchTime>> Executable::profile(std::span<const DevicePtr> inputs,
                                                    std::span<const DevicePtr> outputs,
                                                    Stream stream,
                                                    std::span<const int64_t> dims) const {
  TRY_STATUS(check_counts(impl_->program, inputs.size(), outputs.size()));
  TRY_STATUS(impl_->size_for(dims, stream));
  TRY_STATUS(impl_->own->bind(inputs, outputs, impl_->arena.data()));
  const std::vector<LaunchStep>& steps = impl_->own->steps();
  std::vector<std::unique_ptr<Event>> events;
  for (size_t i = 0; i <= steps.size(); ++i) {
    TRY(auto event, impl_->device->create_event());
    events.push_back(std::move(event));
  }
  size_t next = 0;
  std::optional<NvtxRange> range;  // of the step that is launched next
  const auto record = [&] {
    range.reset();
    if (next < steps.size()) range.emplace(name_of(impl_->program, steps[next]));
    return events[next++]->record(stream);
  };
  TRY_STATUS(record());
  TRY_STATUS(impl_->own->launch(outputs, impl_->workspace.data(), stream, record));
  TRY_STATUS(impl_->device->synchronize(stream));
  std::vector<LaunchTime> times;
  for (size_t i = 0; i < steps.size(); ++i) {
    TRY(const double begin_us, events[i]->us_since(*events[0]));
    TRY(const double end_us, events[i + 1]->us_since(*events[0]));
    times.push_back({steps[i], begin_us, end_us});
  }
  return times;
}

Result<int64_t> Executable::scratch_bytes(std::span<const int64_t> dims) const {
  TRY(std::unique_ptr<BoundCall> call, impl_->take(dims));
  const int64_t bytes = workspace_offset(call->sizes()) + call->sizes().workspace_bytes;
  impl_->give_back(std::move(call));
  return bytes;
}

Status Executable::launch(std::span<const DevicePtr> inputs, std::span<const DevicePtr> outputs,
                          DevicePtr scratch, Stream stream, std::span<const int64_t> dims) const {
  TRY_STATUS(check_counts(impl_->program, inputs.size(), outputs.size()));
  TRY(std::unique_ptr<BoundCall> call, impl_->take(dims));
  const CallSizes& sizes = call->sizes();
  const int64_t workspace = workspace_offset(sizes);
  if (scratch % kScratchAlignment != 0 || (scratch == 0 && workspace + sizes.workspace_bytes > 0))
    return fail(Code::kInvalidArgument, fmt::format("the arena is null, or not {}-byte aligned",
                                                    int64_t{kScratchAlignment}));
  TRY_STATUS(call->bind(inputs, outputs, scratch));
  TRY_STATUS(call->launch(outputs, scratch + static_cast<DevicePtr>(workspace), stream));
  impl_->give_back(std::move(call));
  return {};
}

}  // namespace kiln
