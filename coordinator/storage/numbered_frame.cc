#include "coordinator/storage/numbered_frame.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "compiler_core/base/check.h"
#include "schema/codec.h"

namespace kiln {

static_assert(std::endian::native == std::endian::little);

// The schema decides where the number is: two messages that differ in every bit of it show the
// place.
NumberedFrame::NumberedFrame(const Message& none, const Message& all) : frame_(encode(none)) {
  const std::string other = encode(all);
  const auto [first, unused] = std::ranges::mismatch(frame_, other);
  number_at_ = static_cast<size_t>(first - frame_.begin());
  CHECK(number_at_ + sizeof(uint64_t) <= frame_.size(), "the message has a number");
  std::string patched = frame_;
  std::memset(patched.data() + number_at_, 0xff, sizeof(uint64_t));
  CHECK(patched == other, "the messages differ in the number alone");
}

std::string_view NumberedFrame::with(uint64_t number) {
  std::memcpy(frame_.data() + number_at_, &number, sizeof number);
  return frame_;
}

}  // namespace kiln
