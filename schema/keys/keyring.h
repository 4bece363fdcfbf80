// Keyring: a coordinator's folder of keys (key_file.h) in memory: its own pair, and the keys that
// may come in. Thread-safe: handshakes ask it while the coordinator's loop reads the file again.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "schema/keys/key_file.h"

namespace kiln {

class Keyring {
 public:
  // kNotFound when the folder has no pair, kInvalidArgument when what it has cannot be read.
  static Result<std::shared_ptr<Keyring>> open(Path folder);

  const KeyPair& server() const { return server_; }
  // The owner of a public key (Z85); nothing when the key is not in the list.
  std::optional<User> find(std::string_view public_key) const;
  // The same by name; nothing for the empty one.
  std::optional<User> find_named(std::string_view name) const;
  size_t size() const;

  // Reads authorized_keys again if it was changed: true when it was. A file that cannot be read
  // changes nothing, and is reported once.
  Result<bool> refresh();

 private:
  Keyring(Path folder, KeyPair server) : folder_(std::move(folder)), server_(std::move(server)) {}
  std::string stamp() const;  // identifies the file's state

  const Path folder_;
  const KeyPair server_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::map<std::string, User, std::less<>> users_;  // by public key
  std::string stamp_;
};

}  // namespace kiln
