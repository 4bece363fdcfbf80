// TakeBack and TakenBack: results that an operator no longer trusts are removed, and everything made
// with them.
// Plain values; CacheIndex finds and removes (taking_back.cc), KernelCache does it durably.
//
// A kernel is made with every report on it: one that a worker lost, or called wrong, decided the
// winner too. A program is made with its kernels. So a worker's reports take their kernels along,
// and kernels take their programs; of the other workers' records those kernels keep theirs.
#pragma once

#include <string>
#include <vector>

#include "compiler_core/base/digest.h"

namespace kiln {

struct TakeBack {
  std::vector<Digest> programs;  // keys; their kernels and those kernels' records too
  std::vector<Digest> kernels;   // keys; their records too
  // Reported by this worker, and with this key (TuningRecord::owner), at these times. All
  // of them must hold; empty: any. Nothing is meant where neither of the three is said.
  std::string worker, owner;
  int64_t since_ms = 0, until_ms = INT64_MAX;  // Unix time
  // The records of `kernels` stay: they say which candidate is wrong.
  bool keep_records = false;

  // Whether all records of the kernels go.
  bool takes_records() const { return !keep_records && (!kernels.empty() || !programs.empty()); }
  bool means_reports() const { return !worker.empty() || !owner.empty() || since_ms > 0; }
};

struct TakenBack {
  std::vector<Digest> programs, kernels;  // keys of stored ones; kernels: of records too
  std::vector<Digest> blobs;              // that nothing needs any more
  int64_t records = 0;
  int64_t bytes = 0;  // of blobs
};

// A row of the table `revoked`: programs issued up to `through` (Program::serial) are not to be
// loaded, if they have this key or contain the kernel of this key.
struct Revocation {
  enum class Kind : uint8_t { kProgram = 1, kKernel = 2 };  // persisted
  Kind kind = Kind::kProgram;
  Digest key;
  int64_t through = 0;
  int64_t at_ms = 0;  // Unix time
  bool operator==(const Revocation&) const = default;
};
inline constexpr int64_t kMaxRevocations = 20'000;  // the oldest are dropped beyond

}  // namespace kiln
