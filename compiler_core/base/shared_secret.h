// The secret that two holders of CURVE25519 pairs share: each computes it from its own secret key and
// the other's public one (X25519, RFC 7748). Pure function.
#pragma once

#include <string>
#include <string_view>

#include "compiler_core/base/result.h"

namespace kiln {

// 32 bytes, from two keys of 32 bytes. kInvalidArgument: no keys, or a public one that would make
// the secret a constant.
Result<std::string> shared_secret(std::string_view secret_key, std::string_view public_key);

}  // namespace kiln
