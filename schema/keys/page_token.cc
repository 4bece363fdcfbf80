#include "schema/keys/page_token.h"

#include <fmt/format.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "compiler_core/base/digest.h"
#include "compiler_core/base/primitives.h"
#include "compiler_core/base/signature.h"

namespace kiln {
namespace {

constexpr std::string_view kScheme = "kiln1";
constexpr size_t kKeyBytes = 32;

// The bytes of a key in Z85, which key files have been checked to be.
std::string key_bytes(const std::string& z85) {
  std::string bytes(kKeyBytes, '\0');
  if (zmq_z85_decode(reinterpret_cast<uint8_t*>(bytes.data()), z85.c_str()) == nullptr)
    bytes.clear();
  return bytes;
}

std::string key_text(const Digest& bytes) {
  std::array<char, 41> z85{};
  zmq_z85_encode(z85.data(), bytes.bytes.data(), bytes.bytes.size());
  return z85.data();
}

Result<std::string> proof_of(std::string_view claims, const std::string& own_secret,
                             const std::string& other_public) {
  TRY(const std::string secret, shared_secret(key_bytes(own_secret), key_bytes(other_public)));
  return Hasher("kiln.page_token.v1").add(secret).add(claims).finish().hex();
}

// Takes as long wherever they differ.
bool equal(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned differing = 0;
  for (size_t i = 0; i < a.size(); ++i) differing |= static_cast<unsigned char>(a[i] ^ b[i]);
  return differing == 0;
}

tl::unexpected<Error> refused(const char* why) {
  return fail(Code::kPermissionDenied, fmt::format("{}; `kiln page-token` makes a new one", why));
}

}  // namespace

Result<std::string> make_page_token(const ClientKey& key, Grant grant, int64_t until_s) {
  if (!covers(key.grant, grant))
    return fail(Code::kPermissionDenied,
                fmt::format("the key of '{}' has the role {}, which does not cover {}", key.name,
                            to_string(key.grant), to_string(grant)));
  const std::string claims = fmt::format(
      "{}.{}.{}.{}", kScheme, to_hex(key_bytes(key.pair.public_key)), to_string(grant), until_s);
  TRY(const std::string proof, proof_of(claims, key.pair.secret_key, key.server_key));
  return claims + "." + proof;
}

Result<User> check_page_token(std::string_view token, const Keyring& ring, int64_t now_s) {
  std::vector<std::string_view> parts;
  for (std::string_view rest = token; parts.size() < 5;
       parts.push_back(rest.substr(0, rest.find('.'))),
                        rest.remove_prefix(std::min(rest.size(), parts.back().size() + 1))) {
  }
  const auto key = Digest::parse(parts[1]);  // as many hex digits
  const auto grant = parse_grant(parts[2]);
  int64_t until_s = 0;
  const auto read = std::from_chars(parts[3].data(), parts[3].data() + parts[3].size(), until_s);
  if (token.size() > kMaxPageToken || parts[0] != kScheme || !key || !grant ||
      read.ec != std::errc())
    return refused("that is no token of this page");
  const std::string public_key = key_text(*key);
  const auto user = ring.find(public_key);
  if (!user) return refused("its key is not let in here");
  const std::string_view claims = token.substr(0, token.rfind('.'));
  const auto proof = proof_of(claims, ring.server().secret_key, public_key);
  if (!proof || !equal(*proof, parts[4]) || claims.size() + 1 + parts[4].size() != token.size())
    return refused("that token was not made with the key it names, for this coordinator");
  if (until_s < now_s) return refused("the token has ended");
  if (!covers(user->grant, *grant)) return refused("its key has less than the token says");
  return User{user->name, *grant};
}

}  // namespace kiln
