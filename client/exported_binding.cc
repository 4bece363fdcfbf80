#include "client/exported_binding.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "client/exported_directory.h"

namespace kiln {
namespace {

constexpr char kKind[] = "kiln.binding";
constexpr std::chrono::milliseconds kBindingPatience{10'000};

std::string value_of(const std::string& digest) {
  return "{\"binding\":\"" + digest + "\"}";
}

// The signature of what was just stored: with its key, nobody else can have put another value.
Result<Signature> signature_by(ArtifactClient& coordinator, std::string_view binding) {
  const std::string digest = Digest::of(binding).hex();
  TRY_STATUS(coordinator.put(kKind, digest, value_of(digest), kBindingPatience));
  TRY(ArtifactClient::Found found, coordinator.get(kKind, digest, {.timeout = kBindingPatience}));
  if (found.value != value_of(digest))
    return fail(Code::kCorruption, "the coordinator signed another binding");
  return std::move(found.signature);
}

}  // namespace

Status export_program(const CompiledProgram& program, const Path& model, const Path& directory,
                      ArtifactClient::Options coordinator,
                      const std::function<void(const std::string&)>& say) {
  TRY(const std::string file, read_file(model));
  const std::string binding =
      fmt::format("{{\"input_order\":[{}],\"program\":\"{}\",\"model\":\"{}\"}}\n",
                  fmt::join(program.input_order(), ","), Digest::of(program.manifest()).hex(),
                  Digest::of(file).hex());
  TRY_STATUS(write_exported(program, binding, directory));
  if (program.signature().empty() || coordinator.coordinator.empty()) return {};
  const auto has_signed = [&]() -> Status {
    TRY(const auto client, ArtifactClient::create(std::move(coordinator)));
    TRY(const Signature signature, signature_by(*client, binding));
    return publish_file(directory / "binding.sig", signature.to_string() + "\n");
  }();
  if (!has_signed)
    say(fmt::format("{} is not signed: {}", (directory / "binding.json").string(),
                    has_signed.error().message));
  return {};
}

Status verify_binding(std::string_view binding, const Signature& signature,
                      std::string_view manifest, std::string_view trusted, std::string_view what) {
  const std::string digest = Digest::of(binding).hex();
  TRY_STATUS(
      verify_signature(signed_artifact(kKind, digest, value_of(digest)), signature, trusted, what));
  const auto json = nlohmann::json::parse(binding, nullptr, false);
  if (json.is_object() && json.value("program", nlohmann::json()) == Digest::of(manifest).hex())
    return {};
  return fail(Code::kCorruption, std::string(what) + " is of another program");
}

}  // namespace kiln
