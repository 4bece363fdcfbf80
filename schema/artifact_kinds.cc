#include "schema/artifact_kinds.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "compiler_core/program/offered_kernel.h"
#include "schema/messages.h"

namespace kiln {
namespace {

constexpr size_t kDataBytes = 256 << 10, kMaxMembers = 4096, kMaxText = 256;
constexpr size_t kBindingBytes = 256;  // a digest (client/exported_binding.h)

constexpr std::array kKinds = {
    ArtifactKind{"inductor.aot_autograd", true, kMaxArtifactBytes},
    ArtifactKind{"inductor.autotune", false, kDataBytes},
    ArtifactKind{"inductor.fx_graph", true, kMaxArtifactBytes},
    ArtifactKind{"inductor.gemm", false, kDataBytes},
    ArtifactKind{"kiln.binding", false, kBindingBytes},
    ArtifactKind{kOfferedKind, true, kMaxArtifactBytes},
    ArtifactKind{"triton.group", true, kMaxArtifactBytes},
    ArtifactKind{"vllm.aot", true, kMaxArtifactBytes},
};

tl::unexpected<Error> not_data(const char* why) {
  return fail(Code::kInvalidArgument, std::string("an artifact that is data ") + why);
}

bool is_plain_text(const std::string& text) {
  return text.size() <= kMaxText &&
         std::ranges::none_of(text, [](unsigned char c) { return c < ' ' || c == 127; });
}

bool is_plain(const nlohmann::json& value) {
  if (value.is_string()) return is_plain_text(value.get_ref<const std::string&>());
  if (value.is_number_float()) return std::isfinite(value.get<double>());
  return value.is_number() || value.is_boolean() || value.is_null();
}

}  // namespace

std::span<const ArtifactKind> artifact_kinds() {
  return kKinds;
}

const ArtifactKind* find_artifact_kind(std::string_view name) {
  const auto* found = std::ranges::find(kKinds, name, &ArtifactKind::name);
  return found == kKinds.end() ? nullptr : found;
}

Error unknown_artifact_kind(std::string_view name) {
  std::string known;
  for (const ArtifactKind& kind : kKinds) known.append(known.empty() ? "" : ", ").append(kind.name);
  return {Code::kUnsupported,
          "there are no artifacts of the kind '" + std::string(name) + "'; there are " + known, 0};
}

Status check_artifact_data(std::string_view value) {
  if (value.size() > kDataBytes) return not_data("has at most 256 KiB");
  const auto json = nlohmann::json::parse(value, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return not_data("is one JSON object");
  if (json.size() > kMaxMembers) return not_data("has at most 4096 members");
  for (const auto& [name, member] : json.items())
    if (!is_plain_text(name) || !is_plain(member))
      return not_data(
          "has members that are finite numbers, booleans, null, or text of at most 256 characters");
  return {};
}

}  // namespace kiln
