// ObjectCache: compiled objects by candidate key in a directory, so that a restarted worker does
// not compile again what it has. Bounded in size (base/disk_bound.h). Several workers may share a
// directory: an entry appears whole or not at all, and one that vanishes is a miss.
//
// An entry is a file named by its key: "kiln-object 1 " + hex digest of the object + "\n" + object.
// One that does not match its digest is removed and a miss. Thread-safe.
//
// Objects are loaded and timed, and a winner is signed for the whole fleet: so nobody else on this
// machine may write here.
#pragma once

#include <memory>
#include <optional>

#include "compiler_core/base/digest.h"
#include "compiler_core/base/disk_bound.h"

namespace kiln {

class ObjectCache {
 public:
  // Makes the directory. kPermissionDenied: it, or one above it, is another user's, or others may
  // write in it; that and kUnavailable and the like also when it cannot be written.
  static Result<ObjectCache> open(Path directory, int64_t max_bytes);

  std::optional<std::string> find(const Digest& key);
  // A full disk is not an error: the object is compiled again some day.
  void insert(const Digest& key, std::string_view object);

 private:
  ObjectCache(Path directory, int64_t max_bytes);
  Path path_of(const Digest& key) const { return directory_ / (key.hex() + ".object"); }

  Path directory_;
  std::unique_ptr<DiskBound> bound_;
};

}  // namespace kiln
