// BlobMemoryCache: blobs in memory: those requested or stored lately, so that a fleet that starts
// at once does not read one file a thousand times; and those that the disk would not take, held for
// a while so that the clients that wait for them still get them. Bounded in bytes; held blobs are
// evicted last. One thread.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>

#include "compiler_core/base/digest.h"

namespace kiln {

class BlobMemoryCache {
 public:
  explicit BlobMemoryCache(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Null when it is not here; valid until the next call.
  const std::string* find(const Digest& digest);
  void put(const Digest& digest, std::string bytes);
  // Not given up before `until_ms`, as long as what is held fits by itself.
  // REQUIRES: it was put and is still here, else nothing happens.
  void hold(const Digest& digest, int64_t until_ms);
  void remove(const Digest& digest);  // if it is here
  void expire(int64_t now_ms);        // ends what was held until now
  size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    Digest digest;
    std::string bytes;
    int64_t held_until_ms = 0;  // 0: not held
  };
  using Entries = std::list<Entry>;  // most recently used first

  void make_room();
  void erase(Entries::iterator entry);

  const size_t max_bytes_;
  size_t bytes_ = 0;
  Entries recent_, held_;  // an entry stands in one of them
  std::unordered_map<Digest, Entries::iterator> by_digest_;
};

}  // namespace kiln
