#include "compiler_core/base/result.h"

namespace kiln {

std::string_view to_string(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return "invalid_argument";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kNotFound:
      return "not_found";
    case Code::kOverloaded:
      return "overloaded";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kDeadlineExceeded:
      return "deadline_exceeded";
    case Code::kCorruption:
      return "corruption";
    case Code::kPermissionDenied:
      return "permission_denied";
    case Code::kInternal:
      return "internal";
  }
  return "unknown";
}

Error Error::within(std::string_view context) const {
  Error result = *this;
  result.message.insert(0, std::string(context) + ": ");
  return result;
}

}  // namespace kiln
