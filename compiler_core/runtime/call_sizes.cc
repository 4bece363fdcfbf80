#include "compiler_core/runtime/call_sizes.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/base/check.h"

namespace kiln {
namespace {

Result<int64_t> memory_bytes(const Dim& size, std::span<const int64_t> symbols) {
  TRY(const int64_t bytes, size.evaluate(symbols));
  if (bytes >= 0) return bytes;
  return fail(Code::kInvalidArgument, fmt::format("memory of {} bytes for these sizes", bytes));
}

Status check_symbols(const Program& program, std::span<const int64_t> symbols) {
  if (symbols.size() != program.symbols.size())
    return fail(Code::kInvalidArgument, fmt::format("{} sizes for a program of {} symbols",
                                                    symbols.size(), program.symbols.size()));
  for (size_t i = 0; i < symbols.size(); ++i) {
    const ProgramSymbol& symbol = program.symbols[i];
    if (symbols[i] < symbol.min || symbols[i] > symbol.max)
      return fail(Code::kInvalidArgument, fmt::format("size s{} is {}, outside {} to {}", i,
                                                      symbols[i], symbol.min, symbol.max));
  }
  for (const Guard& guard : program.guards) {
    TRY(const bool holds, guard.holds(symbols));
    if (!holds)
      return fail(Code::kInvalidArgument,
                  fmt::format("the program serves sizes with {} only", guard.to_string()));
  }
  return {};
}

Status add_buffers(const Program& program, CallSizes& sizes) {
  for (const Buffer& buffer : program.buffers) {
    TRY(const int64_t elements, element_count(buffer.spec, sizes.symbols));
    int64_t bytes = 0, offset = 0;
    if (__builtin_mul_overflow(elements, int64_t{size_of(buffer.spec.dtype)}, &bytes))
      return fail(Code::kInvalidArgument, "a tensor has more bytes than can be counted");
    if (buffer.kind == Buffer::Kind::kTemporary) {
      TRY(offset, memory_bytes(buffer.arena_offset, sizes.symbols));
    }
    sizes.bytes.push_back(bytes);
    sizes.offsets.push_back(offset);
  }
  return {};
}

Status add_launch(const Program& program, const Launch& launch, CallSizes& sizes) {
  CallSizes::OfLaunch of_launch;
  for (const Dim& dim : launch.dims) {
    TRY(const int64_t value, dim.evaluate(sizes.symbols));
    of_launch.dims.push_back(value);
  }
  const Recipe& recipe = program.kernels[static_cast<size_t>(launch.kernel)].recipe;
  of_launch.empty =
      !recipe.outputs.empty() &&
      std::all_of(launch.args.begin() + static_cast<std::ptrdiff_t>(recipe.inputs.size()),
                  launch.args.end(),
                  [&sizes](int buffer) { return sizes.bytes[static_cast<size_t>(buffer)] == 0; });
  TRY(const int64_t workspace, memory_bytes(recipe.workspace_bytes, of_launch.dims));
  sizes.workspace_bytes = std::max(sizes.workspace_bytes, workspace);
  // A kernel takes for granted that its grids can be counted.
  for (const Phase& phase : recipe.phases)
    TRY_STATUS(phase.grid.blocks(of_launch.dims).map([](int64_t) {}));
  TRY_STATUS(check_reach(recipe, of_launch.dims));
  sizes.launches.push_back(std::move(of_launch));
  return {};
}

}  // namespace

int64_t blocks_of(const Phase& phase, std::span<const int64_t> dims) {
  const Result<int64_t> blocks = phase.grid.blocks(dims);
  CHECK(blocks.has_value(), "a launch binds every symbol of its recipe");
  return *blocks;
}

Result<CallSizes> sizes_of_call(const Program& program, std::span<const int64_t> symbols) {
  TRY_STATUS(check_symbols(program, symbols));
  CallSizes sizes;
  sizes.symbols.assign(symbols.begin(), symbols.end());
  TRY(sizes.arena_bytes, memory_bytes(program.arena_bytes, symbols));
  TRY_STATUS(add_buffers(program, sizes));
  for (const Launch& launch : program.launches) TRY_STATUS(add_launch(program, launch, sizes));
  return sizes;
}

void place_buffers(const Program& program, std::span<const DevicePtr> inputs,
                   std::span<const DevicePtr> outputs, DevicePtr arena, const CallSizes& sizes,
                   std::vector<DevicePtr>& placed) {
  placed.clear();
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    const size_t index = static_cast<size_t>(buffer.index);
    switch (buffer.kind) {
      case Buffer::Kind::kInput:
        placed.push_back(inputs[index]);
        break;
      case Buffer::Kind::kOutput:
        placed.push_back(outputs[index]);
        break;
      case Buffer::Kind::kTemporary:
        placed.push_back(arena + static_cast<DevicePtr>(sizes.offsets[i]));
        break;
    }
  }
}

}  // namespace kiln
