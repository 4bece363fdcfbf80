#include "compiler_core/program/offered_kernel.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace kiln {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr size_t kMostNameBytes = 64, kMostHeaderBytes = 64 << 10, kDigits = 32;
constexpr std::string_view kPrefix = "offered.";

tl::unexpected<Error> refused(const std::string& why) {
  return fail(Code::kInvalidArgument, "an offered kernel " + why);
}

bool is_word(std::string_view name) {
  return !name.empty() && name.size() <= kMostNameBytes && (name[0] < '0' || name[0] > '9') &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_';
         });
}

std::string text_of(const OrderedJson& json, const char* name) {
  const auto found = json.find(name);
  return found == json.end() || !found->is_string() ? "" : found->get<std::string>();
}

bool is_constant(const std::vector<TensorSpec>& specs) {
  return std::ranges::all_of(specs, [](const TensorSpec& spec) {
    return std::ranges::all_of(spec.shape, &Dim::is_constant);
  });
}

Status check_recipe(const Recipe& recipe) {
  const auto is_fixed = [](const Phase& phase) { return phase.grid.is_constant(); };
  if (!is_constant(recipe.inputs) || !is_constant(recipe.outputs) ||
      !recipe.workspace_bytes.is_constant() || !std::ranges::all_of(recipe.phases, is_fixed))
    return refused("has constant sizes: export the function with static shapes");
  if (recipe.phases.empty()) return refused("launches something");
  if (recipe.calls_library()) return refused("calls no library");
  return check_reach(recipe, {});
}

Status check(const OfferedKernel& offered) {
  if (!is_word(offered.name))
    return refused("has a name of letters, digits and '_', at most 64, and no digit first");
  if (offered.target.isa.empty()) return refused("names its target in full: cuda:sm_90a");
  if (offered.binary.empty()) return refused("has a binary");
  return check_recipe(offered.recipe);
}

}  // namespace

std::string OfferedKernel::template_name() const {
  const Digest made = Hasher("kiln.offered.v1")
                          .add(name)
                          .add(recipe_to_json(recipe))
                          .add(Digest::of(binary))
                          .finish();
  return fmt::format("{}{}.{}", kPrefix, name, made.hex().substr(0, kDigits));
}

std::string OfferedKernel::place(const Digest& workload, const Target& target) {
  return fmt::format("{}/{}/", workload.hex(), target.to_string());
}

std::string OfferedKernel::key() const {
  return place(workload, target) + template_name();
}

bool is_offered(std::string_view template_name) {
  return template_name.starts_with(kPrefix);
}

std::string_view needed_template(std::string_view template_name) {
  return is_offered(template_name) ? kOfferedTemplate : template_name;
}

std::string offered_to_text(const OfferedKernel& offered) {
  const OrderedJson header = {{"format", kFormat},
                              {"workload", offered.workload.hex()},
                              {"target", offered.target.to_string()},
                              {"name", offered.name},
                              {"recipe", OrderedJson::parse(recipe_to_json(offered.recipe))}};
  return header.dump() + "\n" + offered.binary;
}

Result<OfferedKernel> offered_from_text(std::string_view text) {
  const size_t end = text.substr(0, kMostHeaderBytes).find('\n');
  if (end == std::string_view::npos) return refused("begins with a line of JSON");
  const OrderedJson header =
      OrderedJson::parse(text.substr(0, end), nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) return refused("begins with a line of JSON");
  if (const auto format = header.find("format"); format == header.end() || *format != kFormat)
    return refused("has the format 1");
  OfferedKernel offered;
  offered.name = text_of(header, "name");
  TRY(offered.workload, Digest::parse(text_of(header, "workload")));
  TRY(offered.target, Target::parse(text_of(header, "target")));
  const auto recipe = header.find("recipe");
  if (recipe == header.end()) return refused("has a recipe");
  auto parsed = recipe_from_json(recipe->dump());
  if (!parsed) return refused("has a recipe: " + parsed.error().message);
  offered.recipe = *std::move(parsed);
  offered.binary = text.substr(end + 1);
  TRY_STATUS(check(offered));
  return offered;
}

}  // namespace kiln
