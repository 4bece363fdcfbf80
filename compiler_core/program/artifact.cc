#include "compiler_core/program/artifact.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "compiler_core/program/json_fields.h"

namespace kiln {
namespace {

constexpr size_t kMaxEntryLength = 256;
// Limits that no CUDA device exceeds.
constexpr int64_t kMaxBlockThreads = 1024;
constexpr int64_t kMaxCluster = 16;
constexpr int64_t kMaxSharedBytes = 1 << 20;
constexpr size_t kMaxGridAxes = 16;
constexpr size_t kMaxArguments = 512;  // 4 KiB of parameters, of 8 bytes and more
constexpr int64_t kMaxSymbol = 1 << 20;

bool is_c_identifier(std::string_view name) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return !name.empty() && name.size() <= kMaxEntryLength && is_letter(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return is_letter(c) || is_digit(c); });
}

Json specs_to_json(const std::vector<TensorSpec>& specs) {
  Json list = Json::array();
  for (const TensorSpec& spec : specs) list.push_back(spec_to_json(spec));
  return list;
}

Result<std::vector<TensorSpec>> specs_field(const Json& json, const char* name) {
  std::vector<TensorSpec> specs;
  TRY(const Json* list, array_field(json, name));
  for (const Json& item : *list) {
    TRY(TensorSpec spec, spec_from_json(item));
    specs.push_back(std::move(spec));
  }
  return specs;
}

// A number; with symbols, a list of [size, step].
Json grid_to_json(const Grid& grid) {
  if (grid.is_constant()) return grid.constant();
  Json axes = Json::array();
  if (!grid.factor().is(1)) axes.push_back({dim_to_json(grid.factor()), 1});
  for (const GridAxis& axis : grid.axes()) axes.push_back({dim_to_json(axis.size), axis.step});
  return axes;
}

Result<Grid> grid_field(const Json& item) {
  const auto damaged = [] { return fail(Code::kCorruption, "field 'grid' is not a grid"); };
  if (!item.contains("grid") || !item["grid"].is_array()) {
    TRY(const Dim blocks, dim_field(item, "grid"));
    return Grid(blocks);
  }
  std::vector<GridAxis> axes;
  for (const Json& entry : item["grid"]) {
    if (axes.size() == kMaxGridAxes || !entry.is_array() || entry.size() != 2) return damaged();
    GridAxis axis;
    TRY(axis.size, dim_from_json(entry[0], "grid"));
    if (!entry[1].is_number_unsigned() || entry[1].get<uint64_t>() - 1 >= kMaxSizeBytes)
      return damaged();
    axis.step = entry[1].get<int64_t>();
    axes.push_back(std::move(axis));
  }
  Grid grid(axes);
  if (axes.empty() || !grid.factor().is_valid()) return damaged();
  return grid;
}

Json argument_to_json(const KernelArgument& argument) {
  switch (argument.kind) {
    case KernelArgument::Kind::kBuffer:
      return {{"buffer", argument.index}};
    case KernelArgument::Kind::kSymbol:
      return {{"symbol", argument.index}};
    case KernelArgument::Kind::kWorkspace:
      return {{"workspace", 1}};
    case KernelArgument::Kind::kTensorMap:
      return {{"tensor_map", tensor_map_to_json(*argument.map)}};
    case KernelArgument::Kind::kReady:
      return {{"ready", argument.index}};
  }
  return {};
}

Result<KernelArgument> argument_from_json(const Json& json, const Recipe& recipe) {
  using enum KernelArgument::Kind;
  const size_t buffers = recipe.inputs.size() + recipe.outputs.size();
  KernelArgument argument;
  int64_t index = 0;
  if (json.contains("buffer")) {
    TRY(index, int_field(json, "buffer", 0, static_cast<int64_t>(buffers) - 1));
  } else if (json.contains("symbol")) {
    argument.kind = kSymbol;
    TRY(index, int_field(json, "symbol", 0, kMaxSymbol));
  } else if (json.contains("workspace")) {
    argument.kind = kWorkspace;
  } else if (json.contains("ready")) {
    argument.kind = kReady;
    TRY(index, int_field(json, "ready", 0, static_cast<int64_t>(recipe.inputs.size()) - 1));
  } else {
    argument.kind = kTensorMap;
    TRY(const Json* map, object_field(json, "tensor_map"));
    TRY(argument.map, tensor_map_from_json(*map, buffers));
  }
  argument.index = static_cast<int>(index);
  return argument;
}

// Fields that only some phases have are written only for those, so that the others' text stays the
// same.
Json phase_to_json(const Phase& phase) {
  if (phase.call) return {{"call", library_call_to_json(*phase.call)}};
  Json item = {{"entry", phase.entry}, {"grid", grid_to_json(phase.grid)}};
  if (phase.threads > 0)
    item.update({{"threads", phase.threads},
                 {"cluster", phase.cluster},
                 {"shared_bytes", phase.shared_bytes}});
  if (phase.dependent_launch != DependentLaunch::kNo)
    item["dependent_launch"] = static_cast<int>(phase.dependent_launch);
  for (const KernelArgument& argument : phase.arguments)
    item["arguments"].push_back(argument_to_json(argument));
  return item;
}

// `recipe` has its inputs and outputs.
Result<Phase> phase_from_json(const Json& item, const Recipe& recipe) {
  const size_t buffers = recipe.inputs.size() + recipe.outputs.size();
  Phase phase;
  if (item.contains("call")) {
    TRY(const Json* call, object_field(item, "call"));
    TRY(phase.call, library_call_from_json(*call, buffers));
    if (static_cast<size_t>(phase.call->d.buffer) < recipe.inputs.size())
      return fail(Code::kCorruption, "a library call writes into an input");
    return phase;
  }
  TRY(phase.entry, string_field(item, "entry"));
  if (!is_c_identifier(phase.entry))
    return fail(Code::kCorruption, "the entry of a phase is not an identifier");
  TRY(phase.grid, grid_field(item));
  if (item.contains("threads")) {
    TRY(const int64_t threads, int_field(item, "threads", 1, kMaxBlockThreads));
    TRY(const int64_t cluster, int_field(item, "cluster", 1, kMaxCluster));
    TRY(const int64_t shared_bytes, int_field(item, "shared_bytes", 0, kMaxSharedBytes));
    phase.threads = static_cast<int>(threads);
    phase.cluster = static_cast<int>(cluster);
    phase.shared_bytes = static_cast<int>(shared_bytes);
  }
  if (item.contains("dependent_launch")) {
    TRY(const int64_t dependent, int_field(item, "dependent_launch", 0, 2));
    phase.dependent_launch = static_cast<DependentLaunch>(dependent);
  }
  if (!item.contains("arguments")) return phase;
  TRY(const Json* arguments, array_field(item, "arguments"));
  if (arguments->size() > kMaxArguments)
    return fail(Code::kCorruption, "a phase has too many arguments");
  for (const Json& entry : *arguments) {
    TRY(KernelArgument argument, argument_from_json(entry, recipe));
    phase.arguments.push_back(std::move(argument));
  }
  return phase;
}

}  // namespace

Status check_reach(const Recipe& recipe, std::span<const int64_t> symbols) {
  const auto reaches = [](const Phase& phase) { return phase.call || !phase.arguments.empty(); };
  if (std::ranges::none_of(recipe.phases, reaches)) return {};
  std::vector<int64_t> elements, bytes;  // by buffer
  for (const auto* specs : {&recipe.inputs, &recipe.outputs})
    for (const TensorSpec& spec : *specs) {
      TRY(elements.emplace_back(), element_count(spec, symbols));
      if (__builtin_mul_overflow(elements.back(), int64_t{size_of(spec.dtype)},
                                 &bytes.emplace_back()))
        return fail(Code::kInvalidArgument, "a tensor has more bytes than can be counted");
    }
  if (std::ranges::find(elements, 0) != elements.end()) return {};
  for (const Phase& phase : recipe.phases) {
    if (phase.call) TRY_STATUS(phase.call->check(symbols, elements));
    for (const KernelArgument& argument : phase.arguments) {
      if (!argument.map) continue;
      TRY(const int64_t end, argument.map->extent(symbols));
      if (end > bytes[static_cast<size_t>(argument.map->buffer)])
        return fail(Code::kInvalidArgument, "a tensor map reaches beyond its buffer");
    }
  }
  return {};
}

bool Recipe::calls_library() const {
  return std::ranges::any_of(phases, [](const Phase& phase) { return phase.call.has_value(); });
}

Artifact library_artifact(Recipe recipe) {
  Artifact artifact;
  artifact.binary = recipe_to_json(recipe);
  artifact.digest = Digest::of(artifact.binary);
  artifact.recipe = std::move(recipe);
  return artifact;
}

Result<int64_t> element_count(const TensorSpec& spec, std::span<const int64_t> symbols) {
  int64_t count = 1;
  for (const Dim& dim : spec.shape) {
    TRY(const int64_t size, dim.evaluate(symbols));
    if (size < 0) return fail(Code::kInvalidArgument, fmt::format("a size of {}", size));
    if (__builtin_mul_overflow(count, size, &count))
      return fail(Code::kInvalidArgument, "a tensor has more elements than can be counted");
  }
  return count;
}

Json recipe_to_json_value(const Recipe& recipe) {
  Json phases = Json::array();
  for (const Phase& phase : recipe.phases) phases.push_back(phase_to_json(phase));
  Json json = {{"inputs", specs_to_json(recipe.inputs)},
               {"outputs", specs_to_json(recipe.outputs)},
               {"phases", std::move(phases)},
               {"workspace_bytes", dim_to_json(recipe.workspace_bytes)},
               {"scratch_bytes", recipe.scratch_bytes}};
  for (const KeptOutput& each : recipe.kept)
    json["kept"].push_back({{"output", each.output}, {"input", each.input}});
  return json;
}

namespace {

// `recipe` has its inputs and outputs.
Result<std::vector<KeptOutput>> kept_field(const Json& json, const Recipe& recipe) {
  std::vector<KeptOutput> kept;
  if (!json.contains("kept")) return kept;
  TRY(const Json* list, array_field(json, "kept"));
  for (const Json& item : *list) {
    TRY(const int64_t output, int_field(item, "output", 0, std::ssize(recipe.outputs) - 1));
    TRY(const int64_t input, int_field(item, "input", 0, std::ssize(recipe.inputs) - 1));
    const auto is_this = [=](const KeptOutput& each) { return each.output == output; };
    if (std::ranges::any_of(kept, is_this) ||
        recipe.outputs[static_cast<size_t>(output)] != recipe.inputs[static_cast<size_t>(input)])
      return fail(Code::kCorruption, "an output cannot begin as the input that 'kept' names");
    kept.push_back({static_cast<int>(output), static_cast<int>(input)});
  }
  return kept;
}

}  // namespace

bool reads_early(const Phase& phase) {
  return std::ranges::any_of(phase.arguments, [](const KernelArgument& argument) {
    return argument.kind == KernelArgument::Kind::kReady;
  });
}

Result<Recipe> recipe_from_json_value(const Json& json) {
  Recipe recipe;
  TRY(recipe.inputs, specs_field(json, "inputs"));
  TRY(recipe.outputs, specs_field(json, "outputs"));
  TRY(recipe.kept, kept_field(json, recipe));
  TRY(const Json* phases, array_field(json, "phases"));
  for (const Json& item : *phases) {
    TRY(Phase phase, phase_from_json(item, recipe));
    recipe.phases.push_back(std::move(phase));
  }
  TRY(recipe.workspace_bytes, dim_field(json, "workspace_bytes"));
  if (recipe.workspace_bytes.is_constant() && recipe.workspace_bytes.constant() > kMaxSizeBytes)
    return fail(Code::kCorruption, "field 'workspace_bytes' is not in range");
  TRY(recipe.scratch_bytes, int_field(json, "scratch_bytes", 0, kMaxSizeBytes));
  return recipe;
}

std::string recipe_to_json(const Recipe& recipe) {
  return print_json(recipe_to_json_value(recipe));
}

Result<Recipe> recipe_from_json(std::string_view text) {
  TRY(const Json json, parse_json(text));
  return recipe_from_json_value(json);
}

}  // namespace kiln
