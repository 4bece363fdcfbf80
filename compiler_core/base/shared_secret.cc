#include "compiler_core/base/shared_secret.h"

#include <sodium/crypto_scalarmult_curve25519.h>

namespace kiln {

Result<std::string> shared_secret(std::string_view secret_key, std::string_view public_key) {
  std::string secret(crypto_scalarmult_curve25519_BYTES, '\0');
  const bool are_keys = secret_key.size() == crypto_scalarmult_curve25519_SCALARBYTES &&
                        public_key.size() == crypto_scalarmult_curve25519_BYTES;
  if (!are_keys ||
      crypto_scalarmult_curve25519(reinterpret_cast<unsigned char*>(secret.data()),
                                   reinterpret_cast<const unsigned char*>(secret_key.data()),
                                   reinterpret_cast<const unsigned char*>(public_key.data())) != 0)
    return fail(Code::kInvalidArgument, "these are no keys that share a secret");
  return secret;
}

}  // namespace kiln
