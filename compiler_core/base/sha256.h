// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104), for protocols of others that are made of them:
// Kiln's own digests are base/digest's. Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace kiln {

inline constexpr size_t kSha256Bytes = 32;

// 32 bytes, not hex; base/signature's to_hex() prints them.
std::string sha256(std::string_view message);

// 32 bytes, under a key of any length: shows that who made it has the key.
std::string hmac_sha256(std::string_view key, std::string_view message);

}  // namespace kiln
