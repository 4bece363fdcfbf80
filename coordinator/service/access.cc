#include "coordinator/service/access.h"

#include <fmt/format.h>

#include "schema/artifact_kinds.h"
#include "schema/zmq/transport.h"

namespace kiln {

Grant grant_needed(const Message& message) {
  if (const auto* hello = std::get_if<Hello>(&message))
    return hello->role == Role::kWorker ? Grant::kWorker : Grant::kRead;
  if (const auto* request = std::get_if<CompileRequest>(&message))
    return request->graph_text.empty() ? Grant::kRead : Grant::kSubmit;
  if (const auto* put = std::get_if<ArtifactPut>(&message)) {
    const ArtifactKind* kind = find_artifact_kind(put->kind);
    return kind == nullptr ? Grant::kSubmit : kind->grant_to_put();
  }
  if (std::holds_alternative<WorkerReport>(message)) return Grant::kWorker;
  if (std::holds_alternative<AdminRequest>(message)) return Grant::kAdmin;
  return Grant::kRead;
}

Error not_granted(const User& user, Grant needed) {
  return {
      Code::kPermissionDenied,
      fmt::format("that takes a key with the role {}, and the key of '{}' has the role {}; whoever "
                  "runs the coordinator makes another with `kiln keys new NAME --role {}`",
                  to_string(needed), user.name, to_string(user.grant), to_string(needed)),
      0};
}

Result<std::shared_ptr<Keyring>> open_keyring(const std::string& endpoint, const Path& folder,
                                              const Path& data_dir) {
  if (folder.empty()) {
    TRY(const Endpoint parsed, parse_endpoint(endpoint));
    if (parsed.loopback) return nullptr;
  }
  const Path keys = folder.empty() ? data_dir / "keys" : folder;
  auto ring = Keyring::open(keys);
  if (ring && (*ring)->size() > 0) return ring;
  if (!ring && ring.error().code != Code::kNotFound) return ring;
  const std::string why =
      folder.empty() ? endpoint + " can be reached from other machines" : "--keys asks for them";
  const std::string where =
      folder.empty() ? "--data-dir " + data_dir.string() : "--keys " + keys.string();
  return fail(Code::kPermissionDenied,
              fmt::format("nobody has a key for this coordinator ({}), and {}: make one with\n"
                          "  kiln keys new NAME --role submit {}",
                          keys.string(), why, where));
}

}  // namespace kiln
