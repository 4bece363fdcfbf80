// The common parts of the functions of the C interface (kiln.h): reading options, and failing. Thread-safe: an error is the calling thread's.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "client/kiln.h"
#include "compiler_core/base/result.h"

namespace kiln {

// Remembers the error for kiln_last_error(), and gives its code.
kiln_code failed(Error error);

inline kiln_code code_of(const Status& status) {
  return status ? KILN_OK : failed(status.error());
}
inline kiln_code missing(const char* what) {
  return failed({Code::kInvalidArgument, std::string(what) + " is NULL", 0});
}

// The caller's options, as far as its header knew them; zero behind that.
template <class Options>
Options known(const Options* given) {
  Options options{};
  if (given != nullptr) std::memcpy(&options, given, std::min(given->size, sizeof options));
  return options;
}
inline std::string text(const char* given) {
  return given == nullptr ? "" : given;
}

}  // namespace kiln
