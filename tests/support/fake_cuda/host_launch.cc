#include "tests/support/fake_cuda/host_launch.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <mutex>

#include "tests/support/fake_cuda/grid.h"
#include "tests/support/fake_cuda/guarded_memory.h"
#include "tests/support/fake_cuda/host_cubin.h"

namespace kiln::testing {
namespace {

constexpr size_t kAlignment = 16;           // of every buffer, as program/artifact.h promises
constexpr int kMaxSharedBytes = 227 << 10;  // a block's, of compute capability 9.0

Result<std::shared_ptr<const HostModule>> module_of(const std::string& text) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::string, std::shared_ptr<const HostModule>, std::less<>>;
  {
    const std::lock_guard lock(mutex);
    if (const auto found = known.find(text); found != known.end()) return found->second;
  }
  TRY(const HostCubin cubin, compile_host_cubin(text));
  TRY(std::shared_ptr<const HostModule> module, HostModule::load(cubin.bytes));
  const std::lock_guard lock(mutex);
  return known.emplace(text, std::move(module)).first->second;
}

// How a source is run.
struct Conditions {
  bool reversed = false;  // and inputs are ready
  uint8_t poison = 0xff;
  bool at_start = false;  // of their pages: the buffers
};

// A launch's memory: inputs, outputs, workspace.
struct LaunchMemory {
  Conditions conditions;
  std::vector<GuardedMemory> buffers;
  std::vector<std::string> names;

  uint8_t* add(std::string name, size_t bytes) {
    names.push_back(std::move(name));
    buffers.push_back(
        GuardedMemory::make({bytes, kAlignment, conditions.at_start, conditions.poison}));
    std::memset(buffers.back().data(), conditions.poison, bytes);
    return buffers.back().data();
  }
  // "12 bytes past the end of input 0 (64 bytes)", when the address is near a buffer.
  std::string describe(const void* address) const {
    for (size_t i = 0; i < buffers.size(); ++i) {
      if (!buffers[i].is_near(address)) continue;
      const int64_t offset = static_cast<const uint8_t*>(address) - buffers[i].data();
      const auto bytes = static_cast<int64_t>(buffers[i].bytes());
      const std::string of = fmt::format("{} ({} bytes)", names[i], bytes);
      if (offset < 0) return fmt::format(": {} bytes before {}", -offset, of);
      return offset < bytes ? fmt::format(": byte {} of {}", offset, of)
                            : fmt::format(": {} bytes past the end of {}", offset - bytes, of);
    }
    return "";
  }
};

Result<std::vector<int64_t>> sizes_of(const TensorSpec& spec, std::span<const int64_t> dims) {
  std::vector<int64_t> sizes;
  for (const Dim& size : spec.shape) {
    TRY(const int64_t value, size.evaluate(dims));
    sizes.push_back(value);
  }
  return sizes;
}

Status check_inputs(const Recipe& recipe, std::span<const Tensor> inputs,
                    std::span<const int64_t> dims) {
  if (inputs.size() != recipe.inputs.size())
    return fail(Code::kInvalidArgument,
                fmt::format("{} inputs for a recipe of {}", inputs.size(), recipe.inputs.size()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    TRY(const std::vector<int64_t> sizes, sizes_of(recipe.inputs[i], dims));
    if (inputs[i].dtype() != recipe.inputs[i].dtype || inputs[i].sizes() != sizes)
      return fail(Code::kInvalidArgument, fmt::format("input {} is not what the recipe says", i));
  }
  return {};
}

Result<kiln_fake::TensorMap> encode(const TensorMap& map, uint64_t buffer,
                                    std::span<const int64_t> dims) {
  kiln_fake::TensorMap encoded{};
  TRY_STATUS(map.extent(dims).map([](int64_t) {}));
  TRY(const int64_t offset, map.offset.evaluate(dims));
  encoded.address = reinterpret_cast<char*>(buffer) + offset;
  encoded.rank = static_cast<unsigned char>(map.sizes.size());
  // One of the driver's types of that size: unsigned integers of 1, 2, 4 and 8 bytes.
  constexpr unsigned char kTypes[] = {0, 0, 1, 0, 2, 0, 0, 0, 4};
  encoded.dtype = kTypes[size_of(map.dtype)];
  for (size_t axis = 0; axis < map.sizes.size(); ++axis) {
    TRY(const int64_t size, map.sizes[axis].evaluate(dims));
    encoded.sizes[axis] = static_cast<unsigned>(size);
    encoded.element_strides[axis] = static_cast<unsigned char>(map.element_strides[axis]);
    if (!map.im2col) encoded.box[axis] = static_cast<unsigned short>(map.box[axis]);
    if (axis == 0) continue;
    TRY(const int64_t stride, map.strides[axis - 1].evaluate(dims));
    encoded.strides[axis - 1] = static_cast<unsigned long>(stride);
  }
  for (int bytes = 32; bytes <= map.swizzle; bytes *= 2) ++encoded.swizzle;
  encoded.fill = map.fill_nan ? 1 : 0;
  if (!map.im2col) return encoded;
  encoded.is_im2col = 1;
  encoded.channels = static_cast<unsigned short>(map.im2col->channels);
  encoded.pixels = static_cast<unsigned short>(map.im2col->pixels);
  std::copy(map.im2col->lower.begin(), map.im2col->lower.end(), encoded.lower);
  std::copy(map.im2col->upper.begin(), map.im2col->upper.end(), encoded.upper);
  return encoded;
}

// What a phase's parameters point at: by default `values`, which are buffers, workspace, symbols.
Result<std::vector<void*>> parameters_of(const Phase& phase, std::vector<uint64_t>& values,
                                         std::span<const int64_t> dims, bool is_ready,
                                         std::list<kiln_fake::TensorMap>& maps) {
  std::vector<void*> parameters;
  if (phase.arguments.empty())
    for (uint64_t& value : values) parameters.push_back(&value);
  for (const KernelArgument& argument : phase.arguments) {
    using enum KernelArgument::Kind;
    const size_t index = static_cast<size_t>(argument.index),
                 workspace = values.size() - dims.size() - 1;
    if (argument.kind == kReady) {
      static int64_t no = 0, yes = 1;
      parameters.push_back(is_ready ? &yes : &no);
    } else if (argument.kind == kTensorMap) {
      TRY(maps.emplace_back(),
          encode(*argument.map, values[static_cast<size_t>(argument.map->buffer)], dims));
      parameters.push_back(&maps.back());
    } else {
      parameters.push_back(&values[argument.kind == kBuffer   ? index
                                   : argument.kind == kSymbol ? workspace + 1 + index
                                                              : workspace]);
    }
  }
  return parameters;
}

// What a kernel may not read before it has waited for the one in front of it. The recipe's own
// inputs were there before its second phase.
std::vector<kiln_fake::Unready> unready_of(const Recipe& recipe, size_t phase,
                                           const LaunchMemory& memory) {
  std::vector<kiln_fake::Unready> unready;
  if (recipe.phases[phase].dependent_launch == DependentLaunch::kNo) return unready;
  const auto is_ready = [&](size_t buffer) {
    return memory.conditions.reversed &&
           std::ranges::any_of(recipe.phases[phase].arguments, [&](const KernelArgument& argument) {
             return argument.kind == KernelArgument::Kind::kReady &&
                    static_cast<size_t>(argument.index) == buffer;
           });
  };
  for (size_t i = phase == 0 ? 0 : recipe.inputs.size(); i < memory.buffers.size(); ++i) {
    const auto* begin = reinterpret_cast<const char*>(memory.buffers[i].data());
    if (!is_ready(i)) unready.push_back({begin, begin + memory.buffers[i].bytes()});
  }
  return unready;
}

Status launch_phase(const HostModule& module, const Recipe& recipe, size_t number,
                    std::vector<uint64_t>& values, const LaunchMemory& memory,
                    std::span<const int64_t> dims) {
  const Phase& phase = recipe.phases[number];
  if (phase.call) return fail(Code::kUnsupported, "no library is called here");
  const kiln_fake::Entry* entry = module.find(phase.entry);
  if (entry == nullptr)
    return fail(Code::kInternal, fmt::format("the source has no kernel {}", phase.entry));
  TRY(const int64_t grid, phase.grid.blocks(dims));
  if (grid == 0) return {};  // as the runtime has it: no tensor map is encoded
  std::list<kiln_fake::TensorMap> maps;
  TRY(std::vector<void*> parameters,
      parameters_of(phase, values, dims, memory.conditions.reversed, maps));
  if (entry->parameter_count != static_cast<int>(parameters.size()))
    return fail(Code::kInternal,
                fmt::format("kernel {} takes {} parameters, the launch model {}", phase.entry,
                            entry->parameter_count, parameters.size()));
  if (phase.threads <= 0 || phase.threads > 1024 || phase.cluster <= 0 || phase.cluster > 16 ||
      grid % phase.cluster != 0 || phase.shared_bytes < 0 || phase.shared_bytes > kMaxSharedBytes)
    return fail(Code::kInternal,
                fmt::format("no device launches kernel {}: {} blocks of {} threads in clusters of "
                            "{}, {} bytes of shared memory",
                            phase.entry, grid, phase.threads, phase.cluster, phase.shared_bytes));
  if (entry->max_threads != 0 && phase.threads > entry->max_threads)
    return fail(Code::kInternal, fmt::format("kernel {} is bounded to {} threads, {} are launched",
                                             phase.entry, entry->max_threads, phase.threads));
  const auto fault =
      run_grid({*entry, module.module().current, parameters.data(), static_cast<unsigned>(grid),
                phase.threads, phase.cluster, phase.shared_bytes, memory.conditions.reversed,
                memory.conditions.poison, unready_of(recipe, number, memory)});
  if (!fault) return {};
  return fail(Code::kInternal, fault->message + memory.describe(fault->address));
}

Result<std::vector<Tensor>> run_under(const HostModule& module, const Recipe& recipe,
                                      std::span<const Tensor> inputs, std::span<const int64_t> dims,
                                      const Conditions& conditions) {
  LaunchMemory memory{conditions, {}, {}};
  std::vector<uint64_t> values;
  const auto add = [&](std::string name, size_t bytes) {
    values.push_back(reinterpret_cast<uint64_t>(memory.add(std::move(name), bytes)));
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    add(fmt::format("input {}", i), inputs[i].bytes().size());
    std::memcpy(memory.buffers.back().data(), inputs[i].data(), inputs[i].bytes().size());
  }
  std::vector<Tensor> outputs;
  for (const TensorSpec& spec : recipe.outputs) {
    TRY(std::vector<int64_t> sizes, sizes_of(spec, dims));
    outputs.emplace_back(spec.dtype, std::move(sizes));
    add(fmt::format("output {}", outputs.size() - 1), outputs.back().bytes().size());
  }
  for (const KeptOutput& each : recipe.kept) {
    const std::span<const uint8_t> held = inputs[static_cast<size_t>(each.input)].bytes();
    std::memcpy(memory.buffers[inputs.size() + static_cast<size_t>(each.output)].data(),
                held.data(), held.size());
  }
  TRY(const int64_t workspace, recipe.workspace_bytes.evaluate(dims));
  if (workspace > 0)
    add("the workspace", static_cast<size_t>(workspace));
  else
    values.push_back(0);
  for (int64_t dim : dims) values.push_back(static_cast<uint64_t>(dim));

  for (size_t phase = 0; phase < recipe.phases.size(); ++phase)
    TRY_STATUS(launch_phase(module, recipe, phase, values, memory, dims));
  for (size_t i = 0; i < memory.buffers.size(); ++i) {
    if (const std::string damage = memory.buffers[i].damage(); !damage.empty())
      return fail(Code::kInternal, fmt::format("wrote outside {}, {}", memory.names[i], damage));
    if (i < inputs.size() &&
        std::memcmp(memory.buffers[i].data(), inputs[i].data(), inputs[i].bytes().size()) != 0)
      return fail(Code::kInternal, fmt::format("wrote into input {}", i));
  }
  for (size_t i = 0; i < outputs.size(); ++i)
    std::memcpy(outputs[i].data(), memory.buffers[inputs.size() + i].data(),
                outputs[i].bytes().size());
  return outputs;
}

// The first output that is not the same, bit for bit; -1: none.
int first_difference(std::span<const Tensor> a, std::span<const Tensor> b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(a[i].data(), b[i].data(), a[i].bytes().size()) != 0) return static_cast<int>(i);
  return -1;
}

}  // namespace

Result<std::vector<Tensor>> run_on_fake_gpu(const Source& source, std::span<const Tensor> inputs,
                                            std::span<const int64_t> dims) {
  TRY_STATUS(check_inputs(source.recipe, inputs, dims));
  TRY(const std::shared_ptr<const HostModule> module, module_of(source.text));
  const auto run = [&](const Conditions& conditions) {
    return run_under(*module, source.recipe, inputs, dims, conditions);
  };
  TRY(std::vector<Tensor> outputs, run({}));
  TRY(const std::vector<Tensor> again, run({true, 0x5a, true}));
  const int differing = first_difference(outputs, again);
  if (differing < 0) return outputs;
  TRY(const std::vector<Tensor> other_order, run({true, Conditions{}.poison, true}));
  return fail(Code::kInternal, fmt::format("output {} depends on {}", differing,
                                           first_difference(outputs, other_order) < 0
                                               ? "memory that nobody wrote, or is not all written"
                                               : "the order of the threads: a barrier is missing"));
}

}  // namespace kiln::testing
