// HitReply: the answer to a look-up that hits, encoded once (numbered_frame.h), so that answering
// costs no encoding. Plain value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "coordinator/numbered_frame.h"

namespace kiln {

class HitReply {
 public:
  // `memory_only`: as in CompileReply.
  HitReply(std::string manifest, std::string signature, bool memory_only = false)
      : reply_(NumberedFrame::of(CompileReply{0, CacheOutcome::kHit, std::move(manifest),
                                              std::move(signature), memory_only})) {}

  // The frame of the CompileReply to request number `request`; valid until the next call.
  std::string_view frame(uint64_t request) { return reply_.with(request); }
  size_t bytes() const { return reply_.bytes(); }

 private:
  NumberedFrame reply_;
};

}  // namespace kiln
