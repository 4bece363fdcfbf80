// Codec: Message <-> bytes (Cap'n Proto), and bytes <-> frames. decode is safe on hostile bytes:
// size, traversal and nesting limits, and every exception of the library becomes an Error.
//
// A message that is larger than a frame may be travels in parts: frames that each hold a
// MessagePart, put together again at the other end. Small frames keep the I/O thread's turns short,
// and a connection that makes libzmq keep more than a frame is up to no good (zmq/wire_watch.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schema/messages.h"

namespace kiln {

inline constexpr size_t kPartBytes = 128 << 10;
inline constexpr size_t kMaxFrameBytes = kPartBytes + 4096;

std::string encode(const Message& message);
// kInvalidArgument: malformed, too large, unknown kind, or a value out of range.
Result<Message> decode(std::string_view frame);

// The frames, in order, that carry the encoded message `whole`, which is larger than
// kMaxFrameBytes.
std::vector<std::string> parts_of(std::string_view whole);

// One direction of one connection; not thread-safe.
class PartAssembly {
 public:
  // The message that `frame` completes, or nothing yet. kInvalidArgument: malformed, or too large.
  Result<std::optional<Message>> add(std::string_view frame);
  size_t bytes() const { return begun_.size(); }  // of an incomplete message

 private:
  std::string begun_;
};

}  // namespace kiln
