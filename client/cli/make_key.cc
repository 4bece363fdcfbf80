#include "client/cli/make_key.h"

#include "compiler_core/base/signature.h"
#include "schema/keys/key_file.h"

namespace kiln::cli {
namespace {

// The public key that this coordinator signs with; empty when its keys lie in a folder of their
// own, away from a data directory: a client then trusts the key that the coordinator presents.
Result<std::string> signing_key(const Options& options) {
  const Path folder = Path(options.data_dir) / kSigningFolder;
  if (!options.keys_dir.empty() && !std::filesystem::exists(folder)) return std::string();
  TRY(const SigningKey key, SigningKey::load_or_create(folder));
  return to_hex(key.public_key());
}

Result<AuthorizedKey> key_asked_for(const Options& options) {
  AuthorizedKey key;
  key.name = options.files.front();
  key.team = options.team;
  TRY(key.grant, parse_grant(options.role));
  TRY(key.share, parse_share(options.share));
  TRY(key.trust, parse_trust(options.trust));
  TRY_STATUS(check_new_key(key));
  return key;
}

}  // namespace

Path keys_folder(const Options& options) {
  return options.keys_dir.empty() ? Path(options.data_dir) / "keys" : Path(options.keys_dir);
}

// Writes the key file before it authorises the key, so that every authorised key can be used.
Result<Path> make_key(const Options& options) {
  const Path folder = keys_folder(options);
  TRY(AuthorizedKey admitted, key_asked_for(options));  // before anything is made for it
  ClientKey key;
  key.name = admitted.name;
  key.grant = admitted.grant;
  TRY(const KeyPair server, ensure_server_keys(folder));
  key.server_key = server.public_key;
  key.pair = make_key_pair();
  TRY(key.signing_key, signing_key(options));
  const Path file = options.out.empty() ? Path(key.name + ".key") : Path(options.out);
  TRY_STATUS(write_client_key(file, key));
  admitted.public_key = key.pair.public_key;
  if (auto let_in = authorize(folder, admitted); !let_in) {
    std::error_code ignored;
    std::filesystem::remove(file, ignored);
    return fail(std::move(let_in).error());
  }
  return file;
}

}  // namespace kiln::cli
