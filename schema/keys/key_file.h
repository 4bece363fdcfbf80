// Keys on disk. A key is a CURVE25519 pair, written in Z85 (40 printable characters). Every file is
// lines `name = value`; a line that starts with `#` is a comment; unknown names are ignored, so
// that later versions may add some.
//
//   NAME.key, mode 0600: given to a client or worker; --key FILE or KILN_KEY names it.
//       name             the owner, as the coordinator's log and `kiln keys list` print it
//       role             read, submit, worker or admin. For people to read: the coordinator goes by
//                        its own list
//       public, secret   the pair
//       server           the coordinator's public key: no other machine can pose as it
//       signing_key      the Ed25519 key that artifacts are signed with, 64 hex digits; empty:
//                        unsigned
//
// A coordinator's folder of keys (DATA_DIR/keys, or --keys DIR), mode 0700:
//   coordinator.key, mode 0600: its own pair (public, secret)
//   authorized_keys: one key per line, `role name public-key [option]...`, e.g.
//                    `submit ci rq:rM>}U?@Lns47E1%kR... share=team team=vision`. It may be edited; a
//                    running coordinator reads it again when it changes. Options (grant.h):
//                    share=private|team|all (default all), team=NAME, and of a worker's key
//                    trust=screens|finals|alone (default finals).
//   revoked_keys:    one line for each `kiln keys revoke`, `name time taken|kept`: Unix time in ms,
//                    and whether what the key reported is taken back.
//
// Functions here do I/O and keep nothing; each change of a folder takes its lock.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler_core/base/file.h"
#include "schema/keys/grant.h"

namespace kiln {

struct KeyPair {
  std::string public_key, secret_key;  // Z85
};
KeyPair make_key_pair();

struct ClientKey {
  std::string name;
  Grant grant = Grant::kRead;
  KeyPair pair;
  std::string server_key;   // Z85
  std::string signing_key;  // hex; empty: none
};
// kNotFound, kInvalidArgument (no key file), kPermissionDenied (others on this machine may read
// it).
Result<ClientKey> read_client_key(const Path& file);
// Mode 0600; kInvalidArgument when there is such a file already.
Status write_client_key(const Path& file, const ClientKey& key);

struct AuthorizedKey {
  Grant grant = Grant::kRead;
  std::string name;
  std::string public_key;  // Z85
  Share share = Share::kAll;
  std::string team{};
  Trust trust = Trust::kFinals;
  User user() const { return {name, grant, share, team, trust}; }
};
// The options of `key` that are not the default, as its line has them: "share=team team=vision".
std::string options_of(const AuthorizedKey& key);

// The coordinator's own pair; kNotFound when the folder has none.
Result<KeyPair> read_server_keys(const Path& folder);
// As above; makes folder and pair when there are none.
Result<KeyPair> ensure_server_keys(const Path& folder);
// None when there is no such file. kInvalidArgument names the line that cannot be read.
Result<std::vector<AuthorizedKey>> read_authorized_keys(const Path& folder);
// kInvalidArgument: no name for a key.
Status check_key_name(const std::string& name);
// kInvalidArgument: a bad name of the key or its team, or options that do not go together.
Status check_new_key(const AuthorizedKey& key);
// kInvalidArgument: as check_new_key(), and a name that has a key already.
Status authorize(const Path& folder, const AuthorizedKey& key);
// kNotFound: no key has that name. Unless `keep_results`, a coordinator takes back what the key
// reported, at once or when it starts.
Status revoke(const Path& folder, const std::string& name, bool keep_results = false);

struct RevokedKey {
  std::string name;
  int64_t at_ms = 0;
  bool keep_results = false;
};
// Oldest first; none when there is no such file. kInvalidArgument names the line that cannot be
// read.
Result<std::vector<RevokedKey>> read_revoked_keys(const Path& folder);

}  // namespace kiln
