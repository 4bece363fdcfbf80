// Codec: Message <-> one frame of bytes (Cap'n Proto). decode is safe on hostile bytes: size,
// traversal and nesting limits, and every exception of the library becomes an Error.
#pragma once

#include <string>
#include <string_view>

#include "schema/messages.h"

namespace kiln {

std::string encode(const Message& message);
// kInvalidArgument: malformed, too large, unknown kind, or a value out of range.
Result<Message> decode(std::string_view frame);

}  // namespace kiln
