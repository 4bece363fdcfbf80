#include "compiler_core/runtime/program_layout.h"

#include <fmt/core.h>

#include <algorithm>

namespace kiln {
namespace {

Dim numel(const TensorSpec& spec) {
  Dim product = 1;
  for (const Dim& dim : spec.shape) product = product * dim;
  return product;
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

Status check_launches(const Program& program) {
  for (const Launch& launch : program.launches) TRY_STATUS(check_launch(program, launch));
  for (const int output : program.output_buffers)
    if (!in_range(output, program.buffers.size()))
      return fail(Code::kCorruption, "an output names a buffer that the program lacks");
  return {};
}

size_t count_of(const Program& program, Buffer::Kind kind) {
  int count = 0;
  for (const Buffer& buffer : program.buffers)
    if (buffer.kind == kind) count = std::max(count, buffer.index + 1);
  return static_cast<size_t>(count);
}

}  // namespace

Status check_program(const Program& program, std::span<const Artifact> artifacts) {
  if (artifacts.size() != program.kernels.size())
    return fail(Code::kInvalidArgument, fmt::format("{} artifacts for {} kernels", artifacts.size(),
                                                    program.kernels.size()));
  TRY_STATUS(check_launches(program));
  for (size_t i = 0; i < artifacts.size(); ++i) {
    const ProgramKernel& expected = program.kernels[i];
    if (artifacts[i].digest != expected.blob || artifacts[i].recipe != expected.recipe)
      return fail(Code::kCorruption,
                  fmt::format("artifact {} is not the one the program names", i));
  }
  return {};
}

Status check_counts(const Program& program, size_t inputs, size_t outputs) {
  const size_t input_count = count_of(program, Buffer::Kind::kInput);
  if (inputs >= input_count && outputs == program.output_buffers.size()) return {};
  return fail(Code::kInvalidArgument,
              fmt::format("{} inputs and {} outputs for a program of {} and {}", inputs, outputs,
                          input_count, program.output_buffers.size()));
}

Result<MemoryNeed> memory_need(const Program& program, std::span<const int64_t> dims) {
  MemoryNeed need;
  TRY(need.arena_bytes, memory_bytes(program.arena_bytes, dims));
  for (const ProgramKernel& kernel : program.kernels) {
    TRY(const int64_t bytes, memory_bytes(kernel.recipe.workspace_bytes, dims));
    need.workspace_bytes = std::max(need.workspace_bytes, bytes);
  }
  return need;
}

bool has_constant_memory_need(const Program& program) {
  return program.arena_bytes.is_constant() &&
         std::all_of(program.kernels.begin(), program.kernels.end(),
                     [](const ProgramKernel& kernel) {
                       return kernel.recipe.workspace_bytes.is_constant();
                     });
}

Result<int64_t> byte_size(const TensorSpec& spec, std::span<const int64_t> dims) {
  TRY(const int64_t elements, numel(spec).evaluate(dims));
  return elements * size_of(spec.dtype);
}

}  // namespace kiln
