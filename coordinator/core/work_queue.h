// WorkQueue: the kernel flights that have candidates to lease, in turn. Owners (clients) take
// turns, so that one who warms a thousand programs does not keep another from its one; the kernels
// of an owner take turns, so that a large one does not keep small ones waiting. Plain value; one
// thread.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>

#include "compiler_core/base/digest.h"
#include "compiler_core/program/target.h"

namespace kiln {

class WorkQueue {
 public:
  // Once, however often it is called.
  void add(const Target& target, const std::string& owner, const Digest& kernel);
  void remove(const Digest& kernel);
  bool empty() const { return rings_.empty(); }

  // Goes through the flights that `device` can run, those of the owner served longest ago first,
  // until `serve` says that it took work; that flight goes to the end of its ring. False when none
  // did. REQUIRES: `serve` does not change the queue.
  bool serve_next(const Target& device, const std::function<bool(const Digest&)>& serve);

 private:
  // Who can run one kernel of a target can run them all: by Target::to_string, its hard facts.
  using RingId = std::pair<std::string, std::string>;  // target, owner
  struct Ring {
    Target target;
    std::deque<Digest> turn;
    uint64_t served = 0;  // when it last was, in turns
  };
  std::map<RingId, Ring> rings_;  // none is empty
  std::unordered_map<Digest, RingId> member_of_;
  uint64_t turns_ = 0;
};

}  // namespace kiln
