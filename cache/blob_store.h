// BlobStore: files named by the digest of their contents: <root>/<first 2 hex>/<64 hex>. Published
// whole; read back with the digest checked. A bad blob is moved to
// <root>/quarantine and answers kCorruption once, then kNotFound. Thread-safe; several processes
// may share one root (names are contents, so they cannot disagree).
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/base/digest.h"
#include "compiler_core/base/file.h"

namespace kiln {

class BlobStore {
 public:
  enum class Keeps : uint8_t {
    kDurably,
    kWhileItCan,  // a power failure may damage the latest blobs, which is then noticed
  };
  static Result<std::unique_ptr<BlobStore>> open(Path root, Keeps keeps = Keeps::kDurably);

  static Path path_of(const Path& root, const Digest& digest);

  // Stores `bytes` unless they are there (a damaged copy is quarantined and replaced). Durable on
  // return (kDurably), also when another process wrote the file. kUnavailable on a full disk.
  Result<Digest> put(std::string_view bytes);
  Result<std::string> get(const Digest& digest);
  bool contains(const Digest& digest) const;
  Status remove(const Digest& digest);  // removing what is not there is fine

  // The files of one shard, as far as it can be read: for sweeping in small steps.
  static constexpr int kShards = 256;  // by the first byte of the digest
  struct File {
    Path path;
    std::optional<Digest> digest;  // none: half-written, or foreign
    int64_t bytes = 0;
    int64_t written_ms = 0;  // wall clock
  };
  std::vector<File> list(int shard) const;
  // Removes half-written files from a shard: temporary files of another process, or from before
  // `before_ms`. REQUIRES: no other process writes under this root.
  void remove_leftovers(int shard, int64_t before_ms);

  int64_t corrupt_count() const { return corrupt_; }

 private:
  BlobStore(Path root, Keeps keeps) : root_(std::move(root)), keeps_(keeps) {}
  Path path_of(const Digest& digest) const { return path_of(root_, digest); }
  // Makes a shard's folder, one that survives power loss where blobs do; only once, since it stays.
  Status make_folder(const Digest& digest);
  // Reads again and, if the blob is still damaged, moves it away and answers kCorruption.
  Result<std::string> read_or_quarantine(const Digest& digest);

  const Path root_;
  const Keeps keeps_;
  std::atomic<int64_t> corrupt_{0};
  std::array<std::atomic<bool>, kShards> made_folders_{};
  std::mutex quarantine_mu_;  // held from the second read to the move: a repaired blob stays
};

}  // namespace kiln
