#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "compiler_core/program/json_fields.h"

namespace kiln {
namespace {

constexpr int64_t kAlignment = 64;  // of every buffer a kernel sees (artifact.h)

// Whether every symbol of `dim` is one of the first `count`.
bool is_bound(const Dim& dim, size_t count) {
  const std::vector<SymbolId> ids = dim.symbols();
  return ids.empty() || static_cast<size_t>(ids.back()) < count;
}

bool is_bound(const std::vector<TensorSpec>& specs, size_t count) {
  return std::all_of(specs.begin(), specs.end(), [count](const TensorSpec& spec) {
    return std::all_of(spec.shape.begin(), spec.shape.end(),
                       [count](const Dim& dim) { return is_bound(dim, count); });
  });
}

bool is_bound(const std::vector<Dim>& dims, size_t count) {
  return std::all_of(dims.begin(), dims.end(),
                     [count](const Dim& dim) { return is_bound(dim, count); });
}

bool is_bound(const KernelArgument& argument, size_t count) {
  if (argument.kind == KernelArgument::Kind::kSymbol)
    return static_cast<size_t>(argument.index) < count;
  const auto& map = argument.map;
  return !map || (is_bound(map->offset, count) && is_bound(map->sizes, count) &&
                  is_bound(map->strides, count));
}

bool is_bound(const Phase& phase, size_t count) {
  const auto bound = [count](const auto& part) { return is_bound(part, count); };
  return std::ranges::all_of(phase.grid.axes(), bound, &GridAxis::size) &&
         std::ranges::all_of(phase.arguments, bound) &&
         (!phase.call || is_bound(sizes_of(*phase.call), count));
}

bool is_bound(const Recipe& recipe, size_t count) {
  for (const Phase& phase : recipe.phases)
    if (!is_bound(phase, count)) return false;
  return is_bound(recipe.inputs, count) && is_bound(recipe.outputs, count) &&
         is_bound(recipe.workspace_bytes, count);
}

// The recipes of a launch: its kernel's own, and that of the kernel's fallback.
std::vector<const Recipe*> recipes_of(const Program& program, const Launch& launch) {
  const ProgramKernel& kernel = program.kernels[static_cast<size_t>(launch.kernel)];
  if (!kernel.fallback) return {&kernel.recipe};
  return {&kernel.recipe, &kernel.fallback->recipe};
}

// A size is used only where the program or, in a kernel, its launch gives it a value.
Status check_symbols(const Program& program) {
  const size_t count = program.symbols.size();
  const auto bound = [count](const Dim& dim) { return is_bound(dim, count); };
  bool ok = bound(program.arena_bytes);
  for (const Buffer& buffer : program.buffers)
    ok = ok && is_bound({buffer.spec}, count) && bound(buffer.arena_offset);
  for (const Guard& guard : program.guards) ok = ok && bound(guard.value);
  for (const Launch& launch : program.launches)
    for (const Recipe* recipe : recipes_of(program, launch))
      ok = ok && is_bound(launch.dims, count) && is_bound(*recipe, launch.dims.size());
  return ok ? Status{} : Status(damaged("a size has a symbol that nothing binds"));
}

Status check_buffer(const Program& program, const Buffer& buffer, int position,
                    std::span<const int64_t> sizes) {
  if (buffer.kind == Buffer::Kind::kOutput) {
    // An output buffer stands for the first place where it is returned.
    if (static_cast<size_t>(buffer.index) >= program.output_buffers.size() ||
        program.output_buffers[static_cast<size_t>(buffer.index)] != position)
      return damaged("an output buffer is not returned");
  }
  if (buffer.kind != Buffer::Kind::kTemporary) return {};
  const auto offset = buffer.arena_offset.evaluate(sizes);
  if (!offset || *offset < 0 || *offset % kAlignment != 0)
    return damaged("a temporary is not aligned");
  const auto elements = element_count(buffer.spec, sizes);
  const auto arena = program.arena_bytes.evaluate(sizes);
  // None passes kMaxSizeBytes after the first comparisons, so the sum cannot overflow.
  if (!elements || !arena || *offset > *arena || *elements > kMaxSizeBytes ||
      *offset + *elements * size_of(buffer.spec.dtype) > *arena)
    return damaged("a temporary lies outside the arena");
  return {};
}

// A kernel's own shapes may be folded differently from the program's: what counts for memory is the
// dtype and the element count.
bool fits(const TensorSpec& buffer, std::span<const int64_t> sizes, const TensorSpec& argument,
          std::span<const int64_t> dims) {
  const auto held = element_count(buffer, sizes), used = element_count(argument, dims);
  return buffer.dtype == argument.dtype && held && used && *held == *used;
}

Status check_launch(const Program& program, const Launch& launch, const Recipe& recipe,
                    std::span<const int64_t> sizes) {
  const size_t inputs = recipe.inputs.size();
  if (launch.args.size() != inputs + recipe.outputs.size())
    return damaged("a launch has the wrong number of arguments");
  std::vector<int64_t> dims;
  for (const Dim& dim : launch.dims) {
    const auto value = dim.evaluate(sizes);
    if (!value || *value < 0) return damaged("a launch has a size that overflows");
    dims.push_back(*value);
  }
  for (size_t i = 0; i < launch.args.size(); ++i) {
    const Buffer& buffer = program.buffers[static_cast<size_t>(launch.args[i])];
    const bool written = i >= inputs;
    if (written && buffer.kind == Buffer::Kind::kInput)
      return damaged("a launch writes into an input");
    if (!fits(buffer.spec, sizes, written ? recipe.outputs[i - inputs] : recipe.inputs[i], dims))
      return damaged("an argument does not fit its buffer");
  }
  for (const KeptOutput& each : recipe.kept) {
    const auto kind = [&](size_t arg) {
      return program.buffers[static_cast<size_t>(launch.args[arg])].kind;
    };
    if (kind(static_cast<size_t>(each.input)) != Buffer::Kind::kInput ||
        kind(inputs + static_cast<size_t>(each.output)) != Buffer::Kind::kOutput)
      return damaged("what is no output of the program keeps elements of an input");
  }
  if (!check_reach(recipe, dims)) return damaged("a phase reaches beyond its buffers");
  return {};
}

// Checks every buffer and launch for one set of sizes.
Status check_at(const Program& program, std::span<const int64_t> sizes) {
  for (size_t i = 0; i < program.buffers.size(); ++i)
    TRY_STATUS(check_buffer(program, program.buffers[i], static_cast<int>(i), sizes));
  for (const Launch& launch : program.launches)
    for (const Recipe* recipe : recipes_of(program, launch))
      TRY_STATUS(check_launch(program, launch, *recipe, sizes));
  return {};
}

}  // namespace

tl::unexpected<Error> damaged(std::string_view why) {
  return fail(Code::kCorruption, fmt::format("the program is damaged: {}", why));
}

Status check_program(const Program& program) {
  if (program.arena_bytes.is_constant() && program.arena_bytes.constant() > kMaxSizeBytes)
    return damaged("its arena is too large");
  std::set<int> inputs;
  for (const Buffer& buffer : program.buffers)
    if (buffer.kind == Buffer::Kind::kInput && !inputs.insert(buffer.index).second)
      return damaged("two buffers are the same input");
  for (int index : program.output_buffers)
    if (program.buffers[static_cast<size_t>(index)].kind == Buffer::Kind::kTemporary)
      return damaged("an output is a temporary");
  TRY_STATUS(check_symbols(program));
  for (const std::vector<int64_t>& sizes : sample_sizes(program))
    TRY_STATUS(check_at(program, sizes));
  return {};
}

}  // namespace kiln
