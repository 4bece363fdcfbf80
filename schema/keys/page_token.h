// Page tokens: how a browser, or curl, shows a coordinator's web page that it comes from the holder
// of a key, without the key. `kiln page-token` makes one from a key file alone; it ends by itself,
// and with its key. Its text is
//
//   kiln1.PUBLIC.GRANT.UNTIL.PROOF
//
// in hex, but for the grant's name and the Unix time in seconds at which it ends. The proof is a
// digest of the rest and of what only the key's holder and the coordinator know (shared_secret()).
// Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "schema/keys/keyring.h"

namespace kiln {

inline constexpr size_t kMaxPageToken = 256;

// `grant`: the most that the token allows. kPermissionDenied: the key has less.
Result<std::string> make_page_token(const ClientKey& key, Grant grant, int64_t until_s);
// The token's owner, with its grant. kPermissionDenied says what is wrong with it.
Result<User> check_page_token(std::string_view token, const Keyring& ring, int64_t now_s);

}  // namespace kiln
