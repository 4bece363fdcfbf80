// Audit: reads a store's directory from end to end: every blob against its digest, every row
// against its seal and the blobs it names, the index page by page. It only reads, so it may run
// beside the coordinator that serves the directory; entries that change meanwhile are looked at
// twice.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cache/index.h"

namespace kiln {

struct Finding {
  enum class Kind : uint8_t { kIndex, kBlob, kKernel, kProgram, kRecords };
  Kind kind = Kind::kIndex;
  Digest key;           // a blob's, kernel's or program's
  std::string problem;  // a sentence
  std::vector<int64_t> records = {};
};
std::string_view to_string(Finding::Kind kind);  // "index", "blob", ...

struct AuditReport {
  int64_t blobs = 0, kernels = 0, programs = 0, records = 0;  // read
  int64_t bytes = 0;                                          // in blobs
  std::vector<Finding> findings;
};

// Called now and then; false ends the audit early with kDeadlineExceeded.
using AuditProgress = std::function<bool(int64_t done, int64_t total)>;

// kNotFound when there is no store in `directory`; kUnsupported for another version's; kCorruption
// when the index cannot even be opened.
Result<AuditReport> audit(const Path& directory, const AuditProgress& progress = {});

// Quarantines bad blobs, drops bad rows and rows that need a bad blob, and counts anew. Lost
// kernels are tuned again when they are asked for. kUnavailable when a coordinator serves the
// directory; kCorruption when the index itself is damaged (the next coordinator starts with an
// empty one).
Status repair(const Path& directory, const AuditReport& report);

}  // namespace kiln
