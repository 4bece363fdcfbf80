// The wire format of protocol buffers, one message at a time, without a copy: a field's bytes are a
// view of the message. Pure functions; a hostile message costs no memory beyond itself.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "compiler_core/base/result.h"

namespace kiln {

struct WireField {
  enum class Kind : uint8_t { kVarint, kFixed64, kBytes, kFixed32 };
  int number = 0;
  Kind kind = Kind::kVarint;
  uint64_t bits = 0;       // of a varint, or of a fixed number
  std::string_view bytes;  // of a string, a message or packed numbers

  int64_t integer() const { return static_cast<int64_t>(bits); }
};

// Calls `visit` for each field in order; its error ends the walk. kInvalidArgument: the message is
// truncated or malformed, or has a group, which no current format has.
Status for_each_field(std::string_view message,
                      const std::function<Status(const WireField&)>& visit);

// Appends what a repeated integer has in one field, packed or not. kInvalidArgument: malformed, or
// more than `most` in all.
Status append_integers(const WireField& field, size_t most, std::vector<int64_t>& values);
// The same of floats.
Status append_floats(const WireField& field, size_t most, std::vector<float>& values);
// How many varints lie in `packed`, without reading them.
size_t count_varints(std::string_view packed);

}  // namespace kiln
