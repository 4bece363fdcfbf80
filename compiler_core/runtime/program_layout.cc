#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/runtime/call_sizes.h"

namespace kiln {
namespace {

Dim numel(const TensorSpec& spec) {
  Dim product = 1;
  for (const Dim& dim : spec.shape) product = product * dim;
  return product;
}

bool in_range(int index, size_t size) {
  return index >= 0 && static_cast<size_t>(index) < size;
}

// A kernel reads its buffer flat, so the sizes may differ where the number of elements does not.
// `dims`: what the launch says the kernel's symbols are.
bool fits(const TensorSpec& buffer, const TensorSpec& arg, std::span<const Dim> dims) {
  return buffer.dtype == arg.dtype && numel(buffer) == numel(arg).substitute(dims);
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
    if (!fits(program.buffers[static_cast<size_t>(launch.args[i])].spec, arg, launch.dims))
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

std::optional<Recipe> fallback_of(const ProgramKernel& kernel) {
  if (!kernel.fallback) return std::nullopt;
  return kernel.fallback->recipe;
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
    if (artifacts[i].digest != expected.blob || artifacts[i].recipe != expected.recipe ||
        artifacts[i].fallback != fallback_of(expected))
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

}  // namespace kiln
