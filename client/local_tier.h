// LocalTier: programs kept on this machine's disk: <root>/programs/<ProgramKey>.json beside a
// BlobStore. Read before the service is asked, so that a replica starts even when it is away.
// Thread-safe, and safe for several processes on one root: every file is published whole and named
// by what it answers.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "cache/blob_store.h"
#include "compiler_core/program/program.h"

namespace kiln {

// A program with the binary of each of its kernels, digests checked.
struct ProgramFiles {
  Program program;
  std::vector<Artifact> artifacts;  // one per program.kernels
};

class LocalTier {
 public:
  static Result<std::unique_ptr<LocalTier>> open(const Path& root);

  // kNotFound unless the manifest and every blob are there and sound.
  Result<ProgramFiles> get(const Digest& key);
  Result<std::string> blob(const Digest& digest) { return blobs_->get(digest); }
  // Blobs first, manifest last; the first one sweeps up what killed processes left. Failures (a
  // full disk) are the caller's to ignore.
  Status put(const Digest& key, const ProgramFiles& files);

 private:
  LocalTier(const Path& root, std::unique_ptr<BlobStore> blobs)
      : programs_(root / "programs"), shelves_(root / "blobs"), blobs_(std::move(blobs)) {}
  void sweep() const;

  const Path programs_, shelves_;
  const std::unique_ptr<BlobStore> blobs_;
  std::once_flag swept_;  // with the first put
};

}  // namespace kiln
