// Parts: how a message travels that is larger than a frame: cut into frames that each hold a
// MessagePart, put together again at the other end. So no frame is large: what comes behind a big
// message need not wait long for its turn on the I/O thread, and a connection that keeps more than
// a frame to itself (wire_watch.h) is up to no good.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schema/messages.h"

namespace kiln {

inline constexpr size_t kPartBytes = 128 << 10;
inline constexpr size_t kMaxFrameBytes = kPartBytes + 4096;

// The frames, in order, that carry the encoded message `whole`, which is larger than
// kMaxFrameBytes.
std::vector<std::string> parts_of(std::string_view whole);

// One direction of one connection; not thread-safe.
class PartAssembly {
 public:
  // What a frame completes: a message, or nothing yet. kInvalidArgument: malformed, or too large.
  Result<std::optional<Message>> add(std::string_view frame);
  size_t bytes() const { return begun_.size(); }  // of a message that is not whole

 private:
  std::string begun_;
};

}  // namespace kiln
