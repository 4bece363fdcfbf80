// Audit: a store's directory read through from end to end: every blob against its digest, every row
// against its seal and against the blobs it names, the index page by page. It only reads, so it may
// run beside the coordinator that serves the directory; what changes under it is looked at twice.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cache/index.h"

namespace kiln {

struct Finding {
  enum class Kind : uint8_t { kIndex, kBlob, kKernel, kProgram, kRecords };
  Kind kind = Kind::kIndex;
  Digest key;           // of a blob, kernel or program
  std::string problem;  // a sentence
  std::vector<int64_t> records = {};
};
std::string_view to_string(Finding::Kind kind);  // "index", "blob", ...

struct AuditReport {
  int64_t blobs = 0, kernels = 0, programs = 0, records = 0;  // read
  int64_t bytes = 0;                                          // of blobs
  std::vector<Finding> findings;
};

// Called now and then; false ends the audit early with kDeadlineExceeded.
using AuditProgress = std::function<bool(int64_t done, int64_t total)>;

// kNotFound when there is no store in `directory`; kUnsupported for another version's; kCorruption
// when the index cannot even be opened.
Result<AuditReport> audit(const Path& directory, const AuditProgress& progress = {});

// Moves bad blobs aside, drops bad rows and those that need a bad blob, and counts anew: what was
// lost is tuned again when it is asked for. kUnavailable when a coordinator serves the directory;
// kCorruption when the index itself is damaged (the next coordinator starts with an empty one).
Status repair(const Path& directory, const AuditReport& report);

}  // namespace kiln
