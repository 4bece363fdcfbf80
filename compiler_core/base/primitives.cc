#include "compiler_core/base/primitives.h"

#include <sodium.h>

namespace kiln {
namespace {

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

std::string sha256(std::string_view message) {
  std::string hash(crypto_hash_sha256_BYTES, '\0');
  crypto_hash_sha256(reinterpret_cast<unsigned char*>(hash.data()), bytes_of(message),
                     message.size());
  return hash;
}

std::string hmac_sha256(std::string_view key, std::string_view message) {
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, bytes_of(key), key.size());
  crypto_auth_hmacsha256_update(&state, bytes_of(message), message.size());
  std::string mac(crypto_auth_hmacsha256_BYTES, '\0');
  crypto_auth_hmacsha256_final(&state, reinterpret_cast<unsigned char*>(mac.data()));
  return mac;
}

Result<std::string> shared_secret(std::string_view secret_key, std::string_view public_key) {
  std::string secret(crypto_scalarmult_curve25519_BYTES, '\0');
  const bool are_keys = secret_key.size() == crypto_scalarmult_curve25519_SCALARBYTES &&
                        public_key.size() == crypto_scalarmult_curve25519_BYTES;
  if (!are_keys || crypto_scalarmult_curve25519(reinterpret_cast<unsigned char*>(secret.data()),
                                                bytes_of(secret_key), bytes_of(public_key)) != 0)
    return fail(Code::kInvalidArgument, "these are no keys that share a secret");
  return secret;
}

}  // namespace kiln
