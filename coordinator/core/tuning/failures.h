// failure_class: the meaning of a failure. FailureMemory: the failures that are remembered.
//
// Terminal: the failure follows from the candidate, the graph or the request, so trying again gives
// the same. Transient: the fleet, the store or the moment is to blame; trying again may help.
//
//   ok: none
//   compile_failed, wrong_result, out_of_bounds: terminal
//   timed_out, runner_died: transient; after repeated failures the candidate is abandoned, and the
//     fleet is no longer blamed
//   device_lost: transient; the worker is to blame
//
//   invalid_argument (for its sender), unsupported, internal: terminal
//   corruption (the entry is evicted and made anew), overloaded, unavailable, deadline_exceeded:
//     transient
//   not_found (a miss under --check), permission_denied (for its sender): none
#pragma once

#include <deque>
#include <optional>
#include <unordered_map>

#include "compiler_core/base/result.h"
#include "compiler_core/tune/measurement.h"
#include "coordinator/core/events.h"

namespace kiln {

enum class FailureClass : uint8_t { kNone, kTerminal, kTransient };

FailureClass failure_class(Verdict verdict);
FailureClass failure_class(Code code);

// FailureMemory: programs or kernels that failed, so that a repeated request fails at once instead
// of failing the same candidates again. A terminal failure is answered unchanged for
// failure_memory_ms; a transient one for transient_memory_ms, with its age and the time of the next
// attempt. Bounded in number and time, and lost when the process ends (what is known of each
// candidate is in its records). Plain value; one thread.
class FailureMemory {
 public:
  explicit FailureMemory(const CoreOptions& options)
      : keep_ms_(options.failure_memory_ms),
        keep_transient_ms_(options.transient_memory_ms),
        capacity_(options.max_failures_remembered) {}

  // Does nothing for an error of class kNone.
  void remember(int64_t now_ms, const Digest& key, Error error);
  std::optional<Error> find(int64_t now_ms, const Digest& key);
  void clear() {
    errors_.clear();
    terminal_.clear();
    transient_.clear();
  }
  size_t size() const { return errors_.size(); }

 private:
  struct Failure {
    Error error;
    int64_t at_ms = 0;
    bool transient = false;
  };
  using Order = std::deque<Digest>;  // oldest first; each key of errors_ is in one, once
  Order& order_of(bool transient) { return transient ? transient_ : terminal_; }
  void forget_old(int64_t now_ms, Order& order, int64_t keep_ms);
  void forget_oldest(Order& order);

  const int64_t keep_ms_, keep_transient_ms_;
  const int capacity_;
  std::unordered_map<Digest, Failure> errors_;
  Order terminal_, transient_;
};

}  // namespace kiln
