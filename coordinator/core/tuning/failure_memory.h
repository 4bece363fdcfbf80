// FailureMemory: what failed (a program or a kernel), so that asking again answers at once instead
// of failing the same candidates again. Terminal failures (failure_class.h) stand as they are for
// failure_memory_ms; transient ones for transient_memory_ms, and are answered with their age and
// when another try is worth it. Bounded in number and time; gone with the process, hence with the
// code generator (what is known of each candidate is in its records). Plain value; one thread.
#pragma once

#include <deque>
#include <optional>
#include <unordered_map>

#include "coordinator/core/events.h"

namespace kiln {

class FailureMemory {
 public:
  explicit FailureMemory(const CoreOptions& options)
      : keep_ms_(options.failure_memory_ms),
        keep_transient_ms_(options.transient_memory_ms),
        capacity_(options.max_failures_remembered) {}

  // Nothing, when the error is of no class.
  void remember(int64_t now_ms, const Digest& key, Error error);
  std::optional<Error> find(int64_t now_ms, const Digest& key);
  size_t size() const { return errors_.size(); }

 private:
  struct Failure {
    Error error;
    int64_t at_ms = 0;
    bool transient = false;
  };
  using Turn = std::deque<Digest>;  // oldest first; what is in errors_, each once
  Turn& turn_of(bool transient) { return transient ? transient_ : terminal_; }
  void forget_old(int64_t now_ms, Turn& turn, int64_t keep_ms);
  void forget_oldest(Turn& turn);

  const int64_t keep_ms_, keep_transient_ms_;
  const int capacity_;
  std::unordered_map<Digest, Failure> errors_;
  Turn terminal_, transient_;
};

}  // namespace kiln
