// RESP, the protocol of Redis (https://redis.io/docs/latest/develop/reference/protocol-spec/), as far
// as Inductor's client needs it: requests, which are arrays of byte strings, and the few kinds of
// replies. Safe on hostile bytes: everything has a bound before memory is taken for it. A reader
// belongs to one connection; the rest are functions without state.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/base/result.h"

namespace kiln {

inline constexpr size_t kMaxRespWords = 32;  // of one request

class RespReader {
 public:
  // Takes bytes that came from the peer. REQUIRES: next() was asked until it had nothing more.
  void add(std::string_view bytes) { held_.append(bytes); }
  // The next request, which has at least one word and at most `most_bytes` in all its words; nothing
  // while it is not whole. kInvalidArgument: no request of RESP, or larger; the connection is of no
  // use from then on.
  Result<std::optional<std::vector<std::string>>> next(size_t most_bytes);
  size_t held() const { return held_.size(); }  // bytes that were not read yet

 private:
  std::string held_;
};

enum class RespVersion : uint8_t { k2 = 2, k3 = 3 };

std::string resp_ok();                           // "+OK"
std::string resp_simple(std::string_view word);  // REQUIRES: no line break
std::string resp_error(std::string_view why);    // line breaks become spaces
std::string resp_bytes(std::string_view bytes);
std::string resp_nothing(RespVersion version);
// The answer to HELLO.
std::string resp_hello(RespVersion version);

}  // namespace kiln
