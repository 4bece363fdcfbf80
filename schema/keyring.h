// Keyring: a coordinator's folder of keys (key_file.h) in memory: its own pair, and who may come
// in. Thread-safe: the handshakes ask it while the coordinator's loop reads the file again.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "schema/key_file.h"

namespace kiln {

class Keyring {
 public:
  // kNotFound when the folder has no pair, kInvalidArgument when what it has cannot be read.
  static Result<std::shared_ptr<Keyring>> open(Path folder);

  const KeyPair& server() const { return server_; }
  // Whose public key (Z85) that is; nothing when it opens no door.
  std::optional<User> find(std::string_view public_key) const;
  size_t size() const;

  // Reads authorized_keys again if it was changed: true when it was. A file that cannot be read
  // changes nothing, and says so once.
  Result<bool> refresh();

 private:
  Keyring(Path folder, KeyPair server) : folder_(std::move(folder)), server_(std::move(server)) {}
  std::string stamp() const;  // of the file: another when it was changed

  const Path folder_;
  const KeyPair server_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::map<std::string, User, std::less<>> users_;  // by public key
  std::string stamp_;
};

}  // namespace kiln
