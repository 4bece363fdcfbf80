// KeptPrograms: programs that were answered but could not be stored, so only memory serves them.
// Says when memory drops each, so that the next request brings it back to the core, which stores it
// again (without tuning, if the measurements were stored): when a store that was away is back, else
// after a minute, then after twice as long for each further failed store. Plain value; one thread.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "compiler_core/base/digest.h"

namespace kiln {

class KeptPrograms {
 public:
  static constexpr int64_t kFirstMs = 60'000, kLongestMs = 3'600'000;
  static constexpr size_t kMost = 10'000;  // beyond it those due first are dropped early

  void keep(int64_t now_ms, const Digest& program);
  // The store has it now. True if it was one of these: memory still says "memory only".
  bool stored(const Digest& program) { return kept_.erase(program) > 0; }
  // The time of all of them is over.
  void end_waits(int64_t now_ms);
  // Programs whose time is over, each once.
  std::vector<Digest> take_due(int64_t now_ms);

 private:
  struct Kept {
    int64_t wait_ms = 0, due_ms = 0;
    bool given_up = false;  // stays as long again, to remember the length of the wait
  };
  std::unordered_map<Digest, Kept> kept_;
  std::vector<Digest> too_many_;
};

}  // namespace kiln
