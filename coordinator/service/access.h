// The grant that each message needs. The wire proves a peer's identity (schema/keys/keyring.h);
// this file defines what each role may do, and the error for a peer without the grant.
#pragma once

#include <memory>

#include "compiler_core/base/file.h"
#include "schema/keys/keyring.h"
#include "schema/messages.h"

namespace kiln {

// The grant that the sender of `message` needs. A compile request without its graph is a look-up,
// until it misses. Artifacts: artifact_kinds.h.
Grant grant_needed(const Message& message);
// kPermissionDenied: says which role it takes, and how it is given.
Error not_granted(const User& user, Grant needed);

// The keys of a coordinator that is to listen on `endpoint`: those of `folder`; when that is empty
// DATA_DIR/keys, or none on loopback. kPermissionDenied, with the command that makes one, when
// there are none and it takes some.
Result<std::shared_ptr<Keyring>> open_keyring(const std::string& endpoint, const Path& folder,
                                              const Path& data_dir);

}  // namespace kiln
