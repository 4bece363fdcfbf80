// ManifestTable: the manifests of recently requested programs, in memory, in front of the cache's
// index: a hit needs no disk and no parsing, nor a look at the program's stamp, since only programs
// of this build's templates are put here. Also maps a blob to the programs and kernels that need
// it, so that a bad blob leads to what has to be tuned again. Bounded, least recently used first.
// One thread.
#pragma once

#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compiler_core/program/audience.h"
#include "compiler_core/program/program.h"
#include "coordinator/storage/numbered_frame.h"

namespace kiln {

// The answer to a look-up that hits, encoded once (numbered_frame.h): answering encodes nothing.
class HitReply {
 public:
  // `memory_only`, `revocations`: as in CompileReply.
  HitReply(std::string manifest, std::string signature, bool memory_only = false,
           uint64_t revocations = 0, Audience audience = {}, int64_t as_of = 0)
      : as_of_ms(as_of),
        audience_(std::move(audience)),
        reply_(NumberedFrame::of(CompileReply{0, CacheOutcome::kHit, std::move(manifest),
                                              std::move(signature), memory_only, revocations})) {}

  // The frame of the CompileReply to request number `request`; valid until the next call.
  std::string_view frame(uint64_t request) { return reply_.with(request); }
  size_t bytes() const { return reply_.bytes(); }
  const Audience& audience() const { return audience_; }  // who may have it

  // When the store was last known to say so, on the clock of a coordinator that follows.
  int64_t as_of_ms = 0;

 private:
  Audience audience_;
  NumberedFrame reply_;
};

struct SignedManifest {
  std::string json, signature;
  bool memory_only = false;  // the cache could not store it
  uint64_t revocations = 0;
  Audience audience{};
  int64_t as_of_ms = 0;  // as in HitReply
};

class ManifestTable {
 public:
  explicit ManifestTable(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Null when it is not here; valid until the next call.
  HitReply* find(const Digest& program_key);
  // `manifest` is what `program` was read from.
  void insert(const Program& program, SignedManifest manifest);

  // Drops a program, if it is here.
  void remove(const Digest& program_key);
  void clear();
  // The programs found since the last call, each once.
  std::vector<Digest> take_used();

  struct Users {
    std::vector<Digest> programs, kernels;  // keys
  };
  // Drops every program here that needs `blob`; returns them and the kernels whose binary it is.
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
  static constexpr size_t kBytesAKernel = 256, kBytesAnEntry = 256;  // with the indices' tenant

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
