#include "compiler_core/runtime/executable.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "compiler_core/runtime/aligned_buffer.h"

namespace kiln {
namespace {

constexpr uintptr_t kAlignment = 64;

Dim numel(const TensorSpec& spec) {
  Dim product = 1;
  for (const Dim& dim : spec.shape) product = product * dim;
  return product;
}

Result<int64_t> byte_size(const TensorSpec& spec, std::span<const int64_t> dims) {
  TRY(const int64_t elements, numel(spec).evaluate(dims));
  return elements * size_of(spec.dtype);
}

Result<int64_t> memory_bytes(const Dim& size, std::span<const int64_t> dims) {
  TRY(const int64_t bytes, size.evaluate(dims));
  if (bytes >= 0) return bytes;
  return fail(Code::kInvalidArgument, fmt::format("memory of {} bytes for these sizes", bytes));
}

bool in_range(int index, size_t size) {
  return index >= 0 && static_cast<size_t>(index) < size;
}

// A kernel reads its buffer flat, so the sizes may differ where the number of elements does not.
bool fits(const TensorSpec& buffer, const TensorSpec& arg) {
  return buffer.dtype == arg.dtype && numel(buffer) == numel(arg);
}

Status check_launch(const Program& program, const Launch& launch) {
  if (!in_range(launch.kernel, program.kernels.size()))
    return fail(Code::kCorruption, "a launch names a kernel that the program lacks");
  const Recipe& recipe = program.kernels[static_cast<size_t>(launch.kernel)].recipe;
  const size_t inputs = recipe.inputs.size();
  if (launch.args.size() != inputs + recipe.outputs.size())
    return fail(Code::kCorruption, "a launch has not one buffer for each argument of its kernel");
  for (size_t i = 0; i < launch.args.size(); ++i) {
    if (!in_range(launch.args[i], program.buffers.size()))
      return fail(Code::kCorruption, "a launch names a buffer that the program lacks");
    const TensorSpec& arg = i < inputs ? recipe.inputs[i] : recipe.outputs[i - inputs];
    if (!fits(program.buffers[static_cast<size_t>(launch.args[i])].spec, arg))
      return fail(Code::kCorruption,
                  fmt::format("buffer {} is not what argument {} of kernel {} takes",
                              launch.args[i], i, launch.kernel));
  }
  return {};
}

Status check_program(const Program& program) {
  for (const Launch& launch : program.launches) TRY_STATUS(check_launch(program, launch));
  for (const int output : program.output_buffers)
    if (!in_range(output, program.buffers.size()))
      return fail(Code::kCorruption, "an output names a buffer that the program lacks");
  return {};
}

Status check_pointers(std::span<void* const> pointers, std::string_view what) {
  for (void* const pointer : pointers)
    if (pointer == nullptr || reinterpret_cast<uintptr_t>(pointer) % kAlignment != 0)
      return fail(Code::kInvalidArgument,
                  fmt::format("an {} buffer is null or not 64-byte aligned", what));
  return {};
}

size_t count_of(const Program& program, Buffer::Kind kind) {
  int count = 0;
  for (const Buffer& buffer : program.buffers)
    if (buffer.kind == kind) count = std::max(count, buffer.index + 1);
  return static_cast<size_t>(count);
}

}  // namespace

struct Executable::Impl {
  Program program;
  std::vector<Kernel> kernels;

  // Of one call at a time.
  AlignedBuffer arena, workspace;
  std::vector<void*> pointers;  // by buffer
  std::vector<void*> args;

  bool sizes_are_constant() const {
    return program.arena_bytes.is_constant() &&
           std::all_of(kernels.begin(), kernels.end(), [](const Kernel& kernel) {
             return kernel.recipe().workspace_bytes.is_constant();
           });
  }

  Status reserve(std::span<const int64_t> dims) {
    TRY(const int64_t arena_bytes, memory_bytes(program.arena_bytes, dims));
    TRY_STATUS(arena.reserve(arena_bytes));
    for (const Kernel& kernel : kernels) {
      TRY(const int64_t bytes, memory_bytes(kernel.recipe().workspace_bytes, dims));
      TRY_STATUS(workspace.reserve(bytes));
    }
    return {};
  }

  Status place_buffers(std::span<void* const> inputs, std::span<void* const> outputs,
                       std::span<const int64_t> dims) {
    pointers.clear();
    for (const Buffer& buffer : program.buffers) {
      const size_t index = static_cast<size_t>(buffer.index);
      switch (buffer.kind) {
        case Buffer::Kind::kInput:
          pointers.push_back(inputs[index]);
          break;
        case Buffer::Kind::kOutput:
          pointers.push_back(outputs[index]);
          break;
        case Buffer::Kind::kTemporary: {
          TRY(const int64_t offset, buffer.arena_offset.evaluate(dims));
          pointers.push_back(static_cast<char*>(arena.data()) + offset);
          break;
        }
      }
    }
    return {};
  }

  void launch_all(ThreadPool& pool, std::span<const int64_t> dims) {
    for (const Launch& launch : program.launches) {
      args.clear();
      for (const int buffer : launch.args) args.push_back(pointers[static_cast<size_t>(buffer)]);
      kernels[static_cast<size_t>(launch.kernel)].launch(args, dims, workspace.data(), pool);
    }
  }

  // An output that is an input unchanged, or equal to an earlier output, has no buffer of its own.
  Status copy_shared_outputs(std::span<void* const> outputs, std::span<const int64_t> dims) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      const size_t buffer = static_cast<size_t>(program.output_buffers[i]);
      if (pointers[buffer] == outputs[i]) continue;
      TRY(const int64_t bytes, byte_size(program.buffers[buffer].spec, dims));
      std::memcpy(outputs[i], pointers[buffer], static_cast<size_t>(bytes));
    }
    return {};
  }
};

Executable::Executable(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executable::Executable(Executable&&) noexcept = default;
Executable& Executable::operator=(Executable&&) noexcept = default;
Executable::~Executable() = default;

Result<Executable> Executable::load(Program program, std::span<const Artifact> artifacts) {
  if (artifacts.size() != program.kernels.size())
    return fail(Code::kInvalidArgument, fmt::format("{} artifacts for {} kernels", artifacts.size(),
                                                    program.kernels.size()));
  TRY_STATUS(check_program(program));
  auto impl = std::make_unique<Impl>();
  for (size_t i = 0; i < artifacts.size(); ++i) {
    const ProgramKernel& expected = program.kernels[i];
    if (artifacts[i].digest != expected.blob || artifacts[i].recipe != expected.recipe)
      return fail(Code::kCorruption,
                  fmt::format("artifact {} is not the one the program names", i));
    TRY(Kernel kernel, Kernel::load(artifacts[i]));
    impl->kernels.push_back(std::move(kernel));
  }
  impl->program = std::move(program);
  // Sizes with symbols wait for the first call that binds them.
  if (impl->sizes_are_constant()) TRY_STATUS(impl->reserve({}));
  return Executable(std::move(impl));
}

const Program& Executable::program() const {
  return impl_->program;
}

Status Executable::run(std::span<void* const> inputs, std::span<void* const> outputs,
                       ThreadPool& pool, std::span<const int64_t> dims) const {
  const Program& program = impl_->program;
  const size_t input_count = count_of(program, Buffer::Kind::kInput);
  if (inputs.size() < input_count || outputs.size() != program.output_buffers.size())
    return fail(Code::kInvalidArgument,
                fmt::format("{} inputs and {} outputs for a program of {} and {}", inputs.size(),
                            outputs.size(), input_count, program.output_buffers.size()));
  TRY_STATUS(check_pointers(inputs, "input"));
  TRY_STATUS(check_pointers(outputs, "output"));
  TRY_STATUS(impl_->reserve(dims));
  TRY_STATUS(impl_->place_buffers(inputs, outputs, dims));
  impl_->launch_all(pool, dims);
  return impl_->copy_shared_outputs(outputs, dims);
}

}  // namespace kiln
