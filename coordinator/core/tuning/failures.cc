#include "coordinator/core/tuning/failures.h"

#include <fmt/core.h>

#include <algorithm>

namespace kiln {

FailureClass failure_class(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return FailureClass::kNone;
    case Verdict::kCompileFailed:
    case Verdict::kWrongResult:
    case Verdict::kOutOfBounds:
      return FailureClass::kTerminal;
    case Verdict::kTimedOut:
    case Verdict::kRunnerDied:
    case Verdict::kDeviceLost:
      return FailureClass::kTransient;
  }
  return FailureClass::kTransient;
}

FailureClass failure_class(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
    case Code::kUnsupported:
    case Code::kInternal:
      return FailureClass::kTerminal;
    case Code::kOverloaded:
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
    case Code::kCorruption:
      return FailureClass::kTransient;
    case Code::kNotFound:
    case Code::kPermissionDenied:
      return FailureClass::kNone;
  }
  return FailureClass::kTransient;
}

void FailureMemory::remember(int64_t now_ms, const Digest& key, Error error) {
  const FailureClass what = failure_class(error.code);
  if (capacity_ <= 0 || what == FailureClass::kNone) return;
  forget_old(now_ms, terminal_, keep_ms_);
  forget_old(now_ms, transient_, keep_transient_ms_);
  if (errors_.contains(key)) return;
  // Transient ones make room first: they are worth less.
  if (std::ssize(errors_) >= capacity_) forget_oldest(transient_.empty() ? terminal_ : transient_);
  const bool transient = what == FailureClass::kTransient;
  errors_.emplace(key, Failure{std::move(error), now_ms, transient});
  order_of(transient).push_back(key);
}

std::optional<Error> FailureMemory::find(int64_t now_ms, const Digest& key) {
  forget_old(now_ms, terminal_, keep_ms_);
  forget_old(now_ms, transient_, keep_transient_ms_);
  const auto found = errors_.find(key);
  if (found == errors_.end()) return std::nullopt;
  const Failure& failure = found->second;
  Error error = failure.error;
  if (!failure.transient) return error;
  error.retry_after_ms = std::max<int64_t>(1, failure.at_ms + keep_transient_ms_ - now_ms);
  error.message +=
      fmt::format(" (that was {:.1f} s ago; it is tried again when asked for in {:.1f} s)",
                  static_cast<double>(now_ms - failure.at_ms) / 1000,
                  static_cast<double>(error.retry_after_ms) / 1000);
  return error;
}

void FailureMemory::forget_oldest(Order& order) {
  errors_.erase(order.front());
  order.pop_front();
}

void FailureMemory::forget_old(int64_t now_ms, Order& order, int64_t keep_ms) {
  while (!order.empty() && now_ms - errors_.at(order.front()).at_ms >= keep_ms)
    forget_oldest(order);
}

}  // namespace kiln
