// Length-prefixed frames over a connected stream socket: u32 size, little-endian, then that many
// bytes. Knows nothing of what is in them. Thread-safe as the socket is: one sender, one receiver.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "compiler_core/base/result.h"

namespace kiln::runner {

inline constexpr size_t kMaxFrameBytes = 64 << 20;

// Writes a whole frame. kUnavailable when the other end is gone, kDeadlineExceeded when it does not
// read for `timeout_ms` (negative: no limit).
Status send_frame(int socket, std::string_view frame, int64_t timeout_ms);
// The body of the next frame. kUnavailable when the other end closed, kDeadlineExceeded when it is
// not complete within `timeout_ms` (negative: no limit), kCorruption when its size is beyond
// bounds.
Result<std::string> receive_frame(int socket, int64_t timeout_ms);

}  // namespace kiln::runner
