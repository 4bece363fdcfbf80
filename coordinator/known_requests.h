// KnownRequests: look-ups that hit, by the bytes they came in. Clients that ask for one program say
// the same but for the request's number, so that whoever asks after the first is understood without
// decoding, and the program's key is not worked out again: a good part of what a hit costs.
//
// Sound because a frame is known only when it is, but for the number, what encode() makes of a
// request that was decoded and answered: nothing else can stand in the eight bytes that may differ.
// Whether the program is still there, and whether this peer may ask, is the caller's to look up.
// Bounded; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "compiler_core/base/digest.h"
#include "schema/messages.h"

namespace kiln {

class KnownRequests {
 public:
  struct Found {
    Digest program;  // its key
    uint64_t request = 0;
  };

  // `request` was answered with the program of this key. One that brings its graph is not kept.
  void remember(const CompileRequest& request, const Digest& program);
  // What a frame from anybody asks for, when somebody asked in the same words.
  std::optional<Found> find(std::string_view frame);
  size_t size() const { return programs_.size(); }

  static constexpr size_t kMaxRequests = 1 << 15;  // beyond, all are forgotten
  static constexpr size_t kMaxWordsBytes = 1024;   // of one that is kept

 private:
  std::unordered_map<std::string, Digest> programs_;  // by frame, its number zero
  std::string words_;                                 // of the frame that is looked for
};

}  // namespace kiln
