// Result<T>: a value, or an Error whose code says what the caller does next. Every operation that
// can fail for a reason outside our own code (input, disk, network, compiler) returns one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace kiln {

// The kind of an error, by what the caller should do. Values are sent over the wire and are never
// renumbered.
enum class Code : uint8_t {
  kInvalidArgument = 1,   // fix the input
  kUnsupported = 2,       // Kiln does not cover this yet; the message names what
  kNotFound = 3,          // there is no such thing here
  kOverloaded = 4,        // retry after `retry_after_ms`
  kUnavailable = 5,       // reconnect, or fall back
  kDeadlineExceeded = 6,  // the caller's deadline passed
  kCorruption = 7,        // evict and recompute
  kPermissionDenied = 8,  // ask the operator of the service
  kInternal = 9,          // a bug in Kiln; the message carries the log
};

std::string_view to_string(Code code);

struct [[nodiscard]] Error {
  Code code = Code::kInternal;
  std::string message;         // one sentence for a person, starting in lower case
  int64_t retry_after_ms = 0;  // meaningful for kOverloaded only

  // The same error with "context: " in front of the message.
  Error within(std::string_view context) const;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

// fail(Code::kNotFound, "no blob {}", digest): an error ready to return from any Result function.
inline tl::unexpected<Error> fail(Code code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message), 0});
}
inline tl::unexpected<Error> fail(Error error) {
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace kiln

#define KILN_CONCAT_INNER(a, b) a##b
#define KILN_CONCAT(a, b) KILN_CONCAT_INNER(a, b)
// TRY(declaration, expression): declares from the value, or returns the error to our caller.
//   TRY(auto bytes, read_file(path));
#define TRY(declaration, expression) \
  TRY_IMPL(KILN_CONCAT(try_result_, __LINE__), declaration, expression)
#define TRY_IMPL(name, declaration, expression)                               \
  auto name = (expression);                                                   \
  if (!name) return ::tl::unexpected<::kiln::Error>(std::move(name).error()); \
  declaration = *std::move(name)
// TRY_STATUS(expression): for a Status, returns the error to our caller.
#define TRY_STATUS(expression)                                               \
  do {                                                                       \
    if (auto try_status = (expression); !try_status)                         \
      return ::tl::unexpected<::kiln::Error>(std::move(try_status).error()); \
  } while (false)
