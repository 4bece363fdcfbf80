// LocalTier: programs kept on this machine's disk: <root>/programs/<ProgramKey>.json beside a
// BlobStore. Read before the service is asked, so that a replica starts even when it is away.
// Thread-safe, and safe for several processes on one root: every file is published whole and named
// by what it answers. Nothing waits for the disk: what a power failure damages is a miss.
//
// Nothing is taken from it that is not signed. <ProgramKey>.sig has two lines (signature.h): the
// coordinator's signature of the manifest, empty for what was compiled here; and the signature of
// the tier's own key (<root>/signing, mode 0600) over key, manifest and first line, made when it
// was put (<ProgramKey>.put says when, in Unix time). The second must be good; the first too, for a client
// that was given the coordinator's key: it takes nothing that was compiled here. What is unsigned,
// wrongly signed or altered is removed and refused. The directory must be this user's, and nobody
// else may write there.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "cache/blob_store.h"
#include "compiler_core/base/disk_bound.h"
#include "compiler_core/base/signature.h"
#include "compiler_core/program/program.h"

namespace kiln {

struct AuditReport;  // cache/audit.h

// A program with the binary of each of its kernels, digests checked.
struct ProgramFiles {
  Program program;
  std::vector<Artifact> artifacts;  // one per program.kernels
  std::string manifest{};           // as it was signed; empty: compiled here
  Signature signature{};            // the coordinator's
};

class LocalTier {
 public:
  // Holds at most `max_bytes` (0: no bound): what was not used for the longest goes.
  // kPermissionDenied: the directory is another user's, or others may write in it;
  // kUnavailable: it cannot be made.
  static Result<std::unique_ptr<LocalTier>> open(const Path& root, int64_t max_bytes = 0);

  // kNotFound unless the manifest and every blob are there; kPermissionDenied or kCorruption when
  // it is not to be trusted. `signer`: the coordinator's public key when it is known, else empty.
  Result<ProgramFiles> get(const Digest& key, std::string_view signer);
  // Whether `manifest`, the program kept under `key`, is to be trusted, as get() has it; changes
  // nothing. The signature that it came with.
  Result<Signature> check(const Digest& key, const std::string& manifest,
                          std::string_view signer) const;
  Result<std::string> blob(const Digest& digest) { return blobs_->get(digest); }
  void remove(const Digest& key) const;
  // Since the program was put, or came again; the longest there is when it is not there.
  std::chrono::seconds age(const Digest& key) const;
  // Blobs first, manifest last; the first one sweeps up what killed processes left. Failures (a
  // full disk) are the caller's to ignore.
  Status put(const Digest& key, const ProgramFiles& files);

 private:
  LocalTier(const Path& root, std::unique_ptr<BlobStore> blobs, int64_t max_bytes)
      : programs_(root / "programs"),
        shards_(root / "blobs"),
        signing_(root / kSigningFolder),
        blobs_(std::move(blobs)),
        bound_({programs_, shards_}, max_bytes) {}
  void sweep() const;
  // A program's files in the order in which they may be evicted: the manifest before what it needs.
  std::vector<Path> files_of(const Digest& key, const Program& program) const;
  Path file(const Digest& key, const char* ending) const {
    return programs_ / (key.hex() + ending);
  }

  const Path programs_, shards_, signing_;
  const std::unique_ptr<BlobStore> blobs_;
  DiskBound bound_;
  std::once_flag swept_;  // with the first put
};

// Reads a tier through from end to end: every program's signatures and every binary's digest. It
// changes nothing, so it may run beside clients that use the tier. `signer`: the coordinator's
// public signing key; empty: not known, and only the tier's own signatures are checked. Each
// finding names a program or a blob, and says what is wrong with it: unsigned, signed by somebody
// else, altered, missing. kNotFound when there is no tier.
Result<AuditReport> audit_local_tier(const Path& root, std::string_view signer);
// Whether `root` is a tier, and not a coordinator's data directory.
bool is_local_tier(const Path& root);

}  // namespace kiln
