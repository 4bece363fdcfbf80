#include "compiler_core/runtime/executable.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "compiler_core/runtime/aligned_buffer.h"
#include "compiler_core/runtime/call_sizes.h"
#include "compiler_core/runtime/host_memory.h"
#include "compiler_core/runtime/launch_steps.h"
#include "compiler_core/runtime/program_layout.h"

namespace kiln {
namespace {

constexpr uintptr_t kAlignment = 64;

Status check_pointers(std::span<void* const> pointers, std::string_view what) {
  for (void* const pointer : pointers)
    if (pointer == nullptr || reinterpret_cast<uintptr_t>(pointer) % kAlignment != 0)
      return fail(Code::kInvalidArgument,
                  fmt::format("an {} buffer is null or not 64-byte aligned", what));
  return {};
}

}  // namespace

struct Executable::Impl {
  Program program;
  std::vector<Kernel> kernels;

  // Of one call at a time. Calls of the same sizes allocate nothing.
  CallSizes sizes;  // of the last call
  bool sized = false;
  AlignedBuffer arena, workspace;
  std::vector<void*> pointers;  // by buffer

  // What follows from the sizes: the launches that are not empty, step by step. Written anew only
  // where sizes or buffers change, so that the other cores find them in their caches.
  std::vector<Kernel::BoundLaunch> calls;  // their args lie in `args`, their dims in `sizes`
  std::vector<void*> args;
  std::vector<int> arg_buffers;   // what each of `args` is: a buffer
  std::vector<size_t> step_ends;  // into `calls`

  // Memory only grows, so that calls of mixed sizes settle.
  Status size_for(std::span<const int64_t> dims) {
    if (sized && std::equal(dims.begin(), dims.end(), sizes.symbols.begin(), sizes.symbols.end()))
      return {};
    sized = false;
    TRY(sizes, sizes_of_call(program, dims));
    const MemoryNeed needs[] = {{"arena", sizes.arena_bytes, arena.size()},
                                {"workspace", sizes.workspace_bytes, workspace.size()}};
    if (grows(needs)) TRY_STATUS(check_room(needs, available_host_memory(), "this machine"));
    TRY_STATUS(arena.reserve(sizes.arena_bytes));
    TRY_STATUS(workspace.reserve(sizes.workspace_bytes));
    prepare_calls();
    sized = true;
    return {};
  }

  void prepare_calls() {
    calls.clear();
    arg_buffers.clear();
    step_ends.clear();
    const std::vector<LaunchStep> steps = steps_of(program, sizes);
    for (const LaunchStep& step : steps)
      for (const size_t launch : step)
        arg_buffers.insert(arg_buffers.end(), program.launches[launch].args.begin(),
                           program.launches[launch].args.end());
    args.assign(arg_buffers.size(), nullptr);
    std::span<void* const> rest = args;
    for (const LaunchStep& step : steps) {
      for (const size_t i : step) {
        const Launch& launch = program.launches[i];
        calls.push_back({&kernels[static_cast<size_t>(launch.kernel)],
                         rest.first(launch.args.size()), sizes.launches[i].dims});
        rest = rest.subspan(launch.args.size());
      }
      step_ends.push_back(calls.size());
    }
  }

  void bind_args() {
    for (size_t i = 0; i < args.size(); ++i) {
      void* const pointer = pointers[static_cast<size_t>(arg_buffers[i])];
      if (args[i] != pointer) args[i] = pointer;
    }
  }

  void launch_all(ThreadPool& pool) const {
    const std::span<const Kernel::BoundLaunch> all = calls;
    size_t begin = 0;
    for (const size_t end : step_ends) {
      if (end - begin == 1)
        all[begin].kernel->launch(all[begin].args, all[begin].dims, workspace.data(), pool);
      else
        Kernel::launch_side_by_side(all.subspan(begin, end - begin), pool);
      begin = end;
    }
  }

  // An output that is an input unchanged, or equal to an earlier output, has no buffer of its own.
  void copy_shared_outputs(std::span<void* const> outputs) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      const size_t buffer = static_cast<size_t>(program.output_buffers[i]);
      if (pointers[buffer] == outputs[i]) continue;
      std::memcpy(outputs[i], pointers[buffer], static_cast<size_t>(sizes.bytes[buffer]));
    }
  }
};

Executable::Executable(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executable::Executable(Executable&&) noexcept = default;
Executable& Executable::operator=(Executable&&) noexcept = default;
Executable::~Executable() = default;

Result<Executable> Executable::load(Program program, std::span<const Artifact> artifacts) {
  TRY_STATUS(check_program(program, artifacts));
  auto impl = std::make_unique<Impl>();
  for (const Artifact& artifact : artifacts) {
    TRY(Kernel kernel, Kernel::load(artifact));
    impl->kernels.push_back(std::move(kernel));
  }
  impl->program = std::move(program);
  // Sizes with symbols wait for the first call that binds them.
  if (impl->program.symbols.empty()) TRY_STATUS(impl->size_for({}));
  return Executable(std::move(impl));
}

const Program& Executable::program() const {
  return impl_->program;
}

Status Executable::run(std::span<void* const> inputs, std::span<void* const> outputs,
                       ThreadPool& pool, std::span<const int64_t> dims) const {
  TRY_STATUS(check_counts(impl_->program, inputs.size(), outputs.size()));
  TRY_STATUS(check_pointers(inputs, "input"));
  TRY_STATUS(check_pointers(outputs, "output"));
  TRY_STATUS(impl_->size_for(dims));
  place_buffers<void*>(impl_->program, inputs, outputs, impl_->arena.data(), impl_->sizes,
                       impl_->pointers);
  impl_->bind_args();
  impl_->launch_all(pool);
  impl_->copy_shared_outputs(outputs);
  return {};
}

}  // namespace kiln
