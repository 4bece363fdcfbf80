// Exit codes of `kiln`: a promise to scripts (docs/cli.md lists them).
#pragma once

#include "compiler_core/base/result.h"

namespace kiln::cli {

enum ExitCode : int {
  kDone = 0,
  kAnswerIsNo = 1,     // ran, and the answer is no: mismatch, no candidate survived
  kBadInput = 2,       // usage, or a file that is not what it should be
  kUnreachable = 3,    // no service, and no fallback allowed
  kMiss = 4,           // --check: not in the cache
  kTooBusy = 5,        // overloaded, or the deadline passed
  kUnsupportedOp = 6,  // the graph has something Kiln does not cover
};

inline ExitCode exit_code_of(const Error& error) {
  switch (error.code) {
    case Code::kInvalidArgument:
    case Code::kNotFound:
    case Code::kPermissionDenied:
      return kBadInput;
    case Code::kUnsupported:
      return kUnsupportedOp;
    case Code::kOverloaded:
    case Code::kDeadlineExceeded:
      return kTooBusy;
    case Code::kUnavailable:
      return kUnreachable;
    case Code::kCorruption:
    case Code::kInternal:
      return kAnswerIsNo;
  }
  return kAnswerIsNo;
}

// The exit code of an operation on a store: one of another version is bad input, not an unsupported
// op.
inline ExitCode exit_code_of_store(const Error& error) {
  return error.code == Code::kUnsupported ? kBadInput : exit_code_of(error);
}

}  // namespace kiln::cli
