#include "compiler_core/base/primitives.h"

#include <sodium.h>

namespace kiln {

std::string sha256(std::string_view message) {
  std::string hash(crypto_hash_sha256_BYTES, '\0');
  crypto_hash_sha256(unsigned_bytes(hash), unsigned_bytes(message), message.size());
  return hash;
}

std::string hmac_sha256(std::string_view key, std::string_view message) {
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, unsigned_bytes(key), key.size());
  crypto_auth_hmacsha256_update(&state, unsigned_bytes(message), message.size());
  std::string mac(crypto_auth_hmacsha256_BYTES, '\0');
  crypto_auth_hmacsha256_final(&state, unsigned_bytes(mac));
  return mac;
}

Result<std::string> shared_secret(std::string_view secret_key, std::string_view public_key) {
  std::string secret(crypto_scalarmult_curve25519_BYTES, '\0');
  const bool are_keys = secret_key.size() == crypto_scalarmult_curve25519_SCALARBYTES &&
                        public_key.size() == crypto_scalarmult_curve25519_BYTES;
  if (!are_keys || crypto_scalarmult_curve25519(unsigned_bytes(secret), unsigned_bytes(secret_key),
                                                unsigned_bytes(public_key)) != 0)
    return fail(Code::kInvalidArgument, "these are no keys that share a secret");
  return secret;
}

}  // namespace kiln
