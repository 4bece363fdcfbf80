#include "coordinator/core/tuning/failure_class.h"

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

}  // namespace kiln
