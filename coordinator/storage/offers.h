// Offers: which kernels are offered as candidates (program/offered_kernel.h), in front of the artifact
// store, which has them. A kernel that was tuned before an offer for its workload is stale, and so is
// a program with it; a kernel that was tuned beside an offer which is gone is not. Thread-safe: the
// loop adds, planner threads read. The store outlives it.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "cache/artifact_store.h"
#include "compiler_core/program/offered_kernel.h"
#include "compiler_core/program/program.h"

namespace kiln {

class Offers {
 public:
  static constexpr size_t kMostEach = 64;  // for one workload and target; the oldest go

  explicit Offers(ArtifactStore& store) : store_(store) {}

  // Reads the offers that the store's file has from earlier. REQUIRES: nothing was added.
  Status read(const Path& file);

  // Whether `value` may be kept under `key`. kInvalidArgument: it is no offered kernel, or another's
  // than the key says; kPermissionDenied: it would be for some users only, while kernels are tuned for
  // all.
  static Status check(const std::string& key, std::string_view value, const Audience& audience);
  // It is stored: `owner` put it (the name of a key; empty: no keys), at `made_ms`, Unix time.
  void added(const std::string& key, const std::string& owner, int64_t made_ms);
  // Forgets what the owner of a revoked key offered until then; the templates that those were.
  std::vector<std::string> take_back(const std::string& owner, int64_t until_ms);
  // The offers for this workload and target, oldest first. Waits for the store, as planner threads may.
  std::vector<OfferedKernel> of(const Digest& workload, const Target& target);

  // `stored`, the templates that had candidates when a kernel won, without the offers that are gone.
  static TemplateVersions without_gone(const TemplateVersions& stored,
                                       const TemplateVersions& current);

  // Whether some kernel of `program` was not tuned beside an offer that there is now. Only max-autotune,
  // which times, tries any.
  bool has_untried(const Program& program) const;

 private:
  struct Entry {
    std::string key, owner;
    int64_t made_ms = 0;
  };

  ArtifactStore& store_;
  mutable std::mutex mu_;
  std::map<std::string, std::vector<Entry>> by_place_;  // guarded by mu_; oldest first
};

}  // namespace kiln
