// KnownRequests: look-ups that hit, by the bytes of their frames. Clients that ask for one program
// send the same bytes except for the request's number, so later requests are answered without
// decoding and without computing the program's key, which saves a good part of a hit's cost.
//
// This is sound because a frame is known only if it equals, except for the number, encode() of a
// request that was decoded and answered; the eight bytes that may differ hold nothing else. The
// caller checks whether the program is still there and whether this peer may ask. Bounded; one
// thread.
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

  // `request` was answered with the program of this key. A request with its graph is not kept,
  // nor one that is traced: nobody sends its bytes again.
  void remember(const CompileRequest& request, const Digest& program);
  // The program that a frame asks for and its request number, if a request with the same bytes is
  // known.
  std::optional<Found> find(std::string_view frame);
  size_t size() const { return programs_.size(); }

  static constexpr size_t kMaxRequests = 1 << 15;  // beyond, all are forgotten
  static constexpr size_t kMaxWordsBytes = 1024;   // of one that is kept

 private:
  std::unordered_map<std::string, Digest> programs_;  // by frame, its number zero
  std::string words_;                                 // of the frame that is looked for
};

}  // namespace kiln
