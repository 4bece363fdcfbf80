// FailureMemory: what failed for good (a program or a kernel), so that asking again answers at once
// instead of failing the same candidates again. Bounded in number and time; gone with the process,
// hence with the code generator. Plain value; one thread.
#pragma once

#include <deque>
#include <unordered_map>

#include "coordinator/core/core.h"

namespace kiln {

class FailureMemory {
 public:
  explicit FailureMemory(const CoreOptions& options)
      : keep_ms_(options.failure_memory_ms), capacity_(options.max_failures_remembered) {}

  void remember(int64_t now_ms, const Digest& key, Error error);
  const Error* find(int64_t now_ms, const Digest& key);  // nullptr: nothing known
  size_t size() const { return errors_.size(); }

 private:
  struct Failure {
    Error error;
    int64_t at_ms = 0;
  };
  void forget_old(int64_t now_ms);

  const int64_t keep_ms_;
  const int capacity_;
  std::unordered_map<Digest, Failure> errors_;
  std::deque<Digest> oldest_first_;
};

}  // namespace kiln
