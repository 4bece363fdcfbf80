#include "compiler_core/program/artifact.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "compiler_core/program/json_fields.h"

namespace kiln {
namespace {

constexpr size_t kMaxEntryLength = 256;
// What no CUDA device exceeds.
constexpr int64_t kMaxBlockThreads = 1024;
constexpr int64_t kMaxCluster = 16;
constexpr int64_t kMaxSharedBytes = 1 << 20;
constexpr size_t kMaxGridAxes = 16;

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

}  // namespace

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
  for (const Phase& phase : recipe.phases) {
    Json item = {{"entry", phase.entry}, {"grid", grid_to_json(phase.grid)}};
    // A CPU phase has none of these, and is written as it always was.
    if (phase.threads > 0)
      item.update({{"threads", phase.threads},
                   {"cluster", phase.cluster},
                   {"shared_bytes", phase.shared_bytes}});
    phases.push_back(std::move(item));
  }
  return {{"inputs", specs_to_json(recipe.inputs)},
          {"outputs", specs_to_json(recipe.outputs)},
          {"phases", std::move(phases)},
          {"workspace_bytes", dim_to_json(recipe.workspace_bytes)},
          {"scratch_bytes", recipe.scratch_bytes}};
}

Result<Recipe> recipe_from_json_value(const Json& json) {
  Recipe recipe;
  TRY(recipe.inputs, specs_field(json, "inputs"));
  TRY(recipe.outputs, specs_field(json, "outputs"));
  TRY(const Json* phases, array_field(json, "phases"));
  for (const Json& item : *phases) {
    Phase phase;
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
