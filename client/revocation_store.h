// RevocationStore: what the coordinator took back (program/revocations.h), as far as this client has
// heard; kept in a file of its local tier, if it has one, so that the next process knows it before
// it asks anybody. Loaded programs ask it at every run, which costs one atomic read while nothing
// is new. Thread-safe.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "compiler_core/base/file.h"
#include "compiler_core/base/signature.h"
#include "compiler_core/program/revocations.h"

namespace kiln {

class RevocationStore {
 public:
  // `file` may be empty: kept in memory alone. What it holds counts if `signer` signed it; an empty
  // signer: whoever it names.
  RevocationStore(Path file, std::string_view signer);

  uint64_t serial() const { return serial_; }
  // REQUIRES: the signature was checked. An older list changes nothing.
  void hear(const std::string& list, const Signature& signature);
  bool cover(const Program& program) const;
  // kUnavailable, and what to do, where the program is covered.
  Status check(const Program& program) const;

 private:
  const Path file_;
  std::atomic<uint64_t> serial_{0};
  mutable std::mutex mu_;
  Revocations list_;  // guarded by mu_
};

}  // namespace kiln
