// WorkQueue: the kernel flights that have candidates to lease, in turn, so that a large kernel does
// not keep small ones waiting. One ring per target, since who can run one kernel of a target can
// run them all. Plain value; one thread.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "compiler_core/base/digest.h"
#include "compiler_core/program/target.h"

namespace kiln {

class WorkQueue {
 public:
  // Once, however often it is called.
  void add(const Target& target, const Digest& kernel);
  void remove(const Target& target, const Digest& kernel);
  bool empty() const { return rings_.empty(); }

  // Goes through the flights that `device` can run, the one served longest ago first, until `serve`
  // says that it took work; that flight goes to the end of its ring. False when none did. Rings
  // take turns, too. REQUIRES: `serve` does not change the queue.
  bool serve_next(const Target& device, const std::function<bool(const Digest&)>& serve);

 private:
  struct Ring {
    Target target;
    std::deque<Digest> turn;
    std::set<Digest> members;
    uint64_t served = 0;  // when it last was, in turns
  };
  std::map<std::string, Ring> rings_;  // by Target::to_string: its hard facts; none is empty
  uint64_t turns_ = 0;
};

}  // namespace kiln
