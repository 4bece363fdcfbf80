// Cryptographic primitives for protocols of others that are made of them, through libsodium: SHA-256
// (FIPS 180-4), HMAC-SHA-256 (RFC 2104), X25519 (RFC 7748). Kiln's own digests are base/digest's, its
// signatures base/signature's. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "compiler_core/base/result.h"

namespace kiln {

// Strings of bytes, as libsodium takes them.
inline const unsigned char* unsigned_bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
inline unsigned char* unsigned_bytes(std::string& text) {
  return reinterpret_cast<unsigned char*>(text.data());
}

// 32 bytes, not hex; base/signature's to_hex() prints them.
std::string sha256(std::string_view message);

// 32 bytes, under a key of any length: shows that who made it has the key.
std::string hmac_sha256(std::string_view key, std::string_view message);

// The secret that two holders of CURVE25519 pairs share: each computes it from its own secret key and
// the other's public one. 32 bytes, from two keys of 32 bytes. kInvalidArgument: no keys, or a public
// one that would make the secret a constant.
Result<std::string> shared_secret(std::string_view secret_key, std::string_view public_key);

}  // namespace kiln
