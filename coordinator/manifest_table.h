// ManifestTable: the manifests of programs asked for lately, in memory, in front of the cache's
// index: a hit needs no disk and no parsing. Also knows which programs and kernels need a blob, so
// that a bad blob can be traced to what has to be tuned again. Bounded; the least recently used
// go first. One thread.
#pragma once

#include <list>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler_core/program/program.h"
#include "coordinator/hit_reply.h"

namespace kiln {

struct SignedManifest {
  std::string json, signature;
  bool memory_only = false;  // the cache could not store it
};

class ManifestTable {
 public:
  explicit ManifestTable(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Null when it is not here; valid until the next call.
  HitReply* find(const Digest& program_key);
  // `manifest` is what `program` was read from.
  void insert(const Program& program, SignedManifest manifest);

  // What was given up by the cache; nothing happens when it is not here.
  void remove(const Digest& program_key);
  // The programs found since the last call, each once: their uses are written down now and then.
  std::vector<Digest> take_used();

  struct Users {
    std::vector<Digest> programs, kernels;  // keys
  };
  // Drops every program here that needs `blob`, and names them and the kernels it was the binary
  // of.
  Users take_users_of(const Digest& blob);

 private:
  struct Kernel {
    Digest key, blob;
  };
  struct Entry {
    Digest key;
    HitReply reply;
    std::vector<Kernel> kernels;
    bool used = false;  // since take_used()
    size_t bytes() const { return reply.bytes() + kernels.size() * kBytesAKernel + kBytesAnEntry; }
  };
  using Entries = std::list<Entry>;                                  // most recently used first
  static constexpr size_t kBytesAKernel = 256, kBytesAnEntry = 256;  // with the indices' share

  void erase(Entries::iterator entry);

  const size_t max_bytes_;
  size_t bytes_ = 0;
  Entries entries_;
  std::unordered_map<Digest, Entries::iterator> by_key_;
  std::unordered_multimap<Digest, Entries::iterator> by_blob_;
  std::vector<Digest> used_and_gone_;
  size_t inserted_ = 0;  // since take_used()
};

}  // namespace kiln
