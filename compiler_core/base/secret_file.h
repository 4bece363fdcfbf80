// A file that nobody but its owner can read at any moment, however its making ends: a private key.
#pragma once

#include "compiler_core/base/file.h"

namespace kiln {

// Makes `path` hold `bytes` with mode 0600, durable, whole or not at all. One that is there already
// stays as it is: of several who make it at once the first wins, so read it again afterwards. A
// process that is killed meanwhile leaves what remove_unpublished() sweeps up.
Status publish_secret(const Path& path, std::string_view bytes);

}  // namespace kiln
