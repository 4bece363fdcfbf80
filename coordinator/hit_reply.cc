#include "coordinator/hit_reply.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "compiler_core/base/check.h"
#include "schema/codec.h"

namespace kiln {

static_assert(std::endian::native == std::endian::little);

// Where the number stands is the schema's business: two replies that differ in every bit of it show
// the place.
HitReply::HitReply(std::string manifest, std::string signature, bool memory_only) {
  CompileReply reply{0, CacheOutcome::kHit, std::move(manifest), std::move(signature), memory_only};
  frame_ = encode(reply);
  reply.request = ~uint64_t{0};
  const std::string other = encode(reply);
  const auto [first, unused] = std::ranges::mismatch(frame_, other);
  number_at_ = static_cast<size_t>(first - frame_.begin());
  std::string patched = frame_;
  CHECK(number_at_ + sizeof(uint64_t) <= frame_.size(), "a reply has a number");
  std::memset(patched.data() + number_at_, 0xff, sizeof(uint64_t));
  CHECK(patched == other, "two replies differ in the number alone");
}

std::string_view HitReply::frame(uint64_t request) {
  std::memcpy(frame_.data() + number_at_, &request, sizeof request);
  return frame_;
}

}  // namespace kiln
