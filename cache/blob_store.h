// BlobStore: files named by the digest of what is in them: <root>/<first 2 hex>/<64 hex>. Published
// with base/file's publish_file; read back with the digest checked. A bad blob is moved to
// <root>/quarantine and answers kCorruption once, then kNotFound. Thread-safe; several processes may
// share one root (names are contents, so they cannot disagree).
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "compiler_core/base/digest.h"
#include "compiler_core/base/file.h"

namespace kiln {

class BlobStore {
 public:
  static Result<std::unique_ptr<BlobStore>> open(Path root);

  // Stores `bytes` unless they are there. kUnavailable on a full disk.
  Result<Digest> put(std::string_view bytes);
  Result<std::string> get(const Digest& digest);
  bool contains(const Digest& digest) const;
  Status remove(const Digest& digest);

  int64_t corrupt_count() const { return corrupt_; }

 private:
  explicit BlobStore(Path root) : root_(std::move(root)) {}
  Path path_of(const Digest& digest) const;

  const Path root_;
  std::atomic<int64_t> corrupt_{0};
};

}  // namespace kiln
