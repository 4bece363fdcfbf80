// HitReply: the answer to a look-up that hits, encoded once: from one client to the next only the
// request's number differs, so answering costs no encoding. Plain value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kiln {

class HitReply {
 public:
  // `memory_only`: as in CompileReply.
  HitReply(std::string manifest, std::string signature, bool memory_only = false);

  // The frame of the CompileReply to request number `request`; valid until the next call.
  std::string_view frame(uint64_t request);
  size_t bytes() const { return frame_.size(); }

 private:
  std::string frame_;
  size_t number_at_ = 0;  // eight bytes, little-endian, as everywhere in Cap'n Proto
};

}  // namespace kiln
