// Access: which key a message takes. The wire proves who somebody is (schema/keys/keyring.h); here
// stands what each role may do with it, and what those are told who may not.
#pragma once

#include <memory>

#include "compiler_core/base/file.h"
#include "schema/keys/keyring.h"
#include "schema/messages.h"

namespace kiln {

// What whoever sends `message` must have been granted. A request to compile without its graph is
// a look-up, until it misses.
Grant grant_needed(const Message& message);
// kPermissionDenied: says which role it takes, and how it is given.
Error not_granted(const User& user, Grant needed);

// The keys of a coordinator that is to listen on `endpoint`: those of `folder`; when that is empty
// DATA_DIR/keys, or none on loopback. kPermissionDenied, with the command that makes one, when
// there are none and it takes some.
Result<std::shared_ptr<Keyring>> open_keyring(const std::string& endpoint, const Path& folder,
                                              const Path& data_dir);

}  // namespace kiln
