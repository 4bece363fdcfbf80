#include "schema/keys/keyring.h"

#include <fmt/format.h>
#include <sys/stat.h>

namespace kiln {

Result<std::shared_ptr<Keyring>> Keyring::open(Path folder) {
  TRY(KeyPair server, read_server_keys(folder));
  std::shared_ptr<Keyring> ring(new Keyring(std::move(folder), std::move(server)));
  TRY([[maybe_unused]] const bool first, ring->refresh());
  return ring;
}

std::optional<User> Keyring::find(std::string_view public_key) const {
  const std::lock_guard lock(mutex_);
  const auto found = users_.find(public_key);
  if (found == users_.end()) return std::nullopt;
  return found->second;
}

std::optional<User> Keyring::find_named(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, user] : users_)
    if (user.name == name) return user;
  return std::nullopt;
}

size_t Keyring::size() const {
  const std::lock_guard lock(mutex_);
  return users_.size();
}

Result<bool> Keyring::refresh() {
  std::string now = stamp();
  {
    const std::lock_guard lock(mutex_);
    if (now == stamp_) return false;
    stamp_ = std::move(now);
  }
  TRY(const auto keys, read_authorized_keys(folder_));
  std::map<std::string, User, std::less<>> users;
  for (const AuthorizedKey& key : keys) users[key.public_key] = key.user();
  const std::lock_guard lock(mutex_);
  users_ = std::move(users);
  return true;
}

std::string Keyring::stamp() const {
  struct stat status {};
  if (::stat((folder_ / "authorized_keys").c_str(), &status) != 0) return "none";
  return fmt::format("{}.{} {} {}", status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ino,
                     status.st_size);
}

}  // namespace kiln
