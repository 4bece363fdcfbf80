// The artifacts of the C interface (kiln.h) over ArtifactClient.
#include "client/artifact_client.h"
#include "client/c_call.h"

using namespace kiln;

struct kiln_artifacts {
  std::unique_ptr<ArtifactClient> client;
};

namespace {

struct Value {
  kiln_artifact description{};  // first: what callers hold points at it
  std::string bytes;
};

std::chrono::milliseconds timeout(int32_t given_ms) {
  constexpr int32_t kUsualMs = 2000;
  return std::chrono::milliseconds(given_ms > 0 ? given_ms : kUsualMs);
}

}  // namespace

extern "C" {

kiln_code kiln_artifacts_open(const kiln_artifacts_options* given, kiln_artifacts** artifacts) {
  const kiln_artifacts_options from = known(given);
  if (artifacts == nullptr || from.coordinator == nullptr)
    return missing("the coordinator or the place for the artifacts");
  auto made =
      ArtifactClient::create({text(from.coordinator), text(from.key_file), text(from.signing_key)});
  if (!made) return failed(std::move(made).error());
  *artifacts = new kiln_artifacts{*std::move(made)};
  return KILN_OK;
}
void kiln_artifacts_close(kiln_artifacts* artifacts) {
  delete artifacts;
}

kiln_code kiln_artifact_get(kiln_artifacts* artifacts, const char* kind, const char* key,
                            const kiln_artifact_options* given, kiln_artifact** artifact) {
  if (artifacts == nullptr || kind == nullptr || key == nullptr || artifact == nullptr)
    return missing("the artifacts, the kind, the key or the place for the artifact");
  const kiln_artifact_options options = known(given);
  auto found = artifacts->client->get(
      kind, key,
      {timeout(options.timeout_ms), std::chrono::milliseconds(options.wait_ms),
       std::chrono::milliseconds(options.lease_ms)});
  if (!found) return failed(std::move(found).error());
  auto value = std::make_unique<Value>();
  value->description = {nullptr, 0, found->lease, found->leased ? 1 : 0};
  if (found->value) {
    value->bytes = *std::move(found->value);
    value->description.bytes = value->bytes.data();
    value->description.bytes_size = value->bytes.size();
  }
  *artifact = &value.release()->description;
  return KILN_OK;
}
void kiln_artifact_free(kiln_artifact* artifact) {
  delete reinterpret_cast<Value*>(artifact);
}

kiln_code kiln_artifact_put(kiln_artifacts* artifacts, const char* kind, const char* key,
                            const void* bytes, size_t bytes_size, int32_t timeout_ms) {
  if (artifacts == nullptr || kind == nullptr || key == nullptr || bytes == nullptr)
    return missing("the artifacts, the kind, the key or the bytes");
  return code_of(artifacts->client->put(
      kind, key, std::string(static_cast<const char*>(bytes), bytes_size), timeout(timeout_ms)));
}
kiln_code kiln_artifact_release(kiln_artifacts* artifacts, uint64_t lease, int32_t timeout_ms) {
  if (artifacts == nullptr) return missing("the artifacts");
  return code_of(artifacts->client->release(lease, timeout(timeout_ms)));
}

}  // extern "C"
