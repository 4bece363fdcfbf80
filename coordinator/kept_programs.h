// KeptPrograms: programs that were answered and could not be stored, which memory alone serves.
// Says when memory gives each up, so that the next who asks brings it back to the core, which
// stores it (without tuning, where the measurements were stored): after a minute, and twice as long
// each time that it could not be stored again. Plain value; one thread.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "compiler_core/base/digest.h"

namespace kiln {

class KeptPrograms {
 public:
  static constexpr int64_t kFirstMs = 60'000, kLongestMs = 3'600'000;
  static constexpr size_t kMost = 10'000;  // beyond it those due first are given up early

  void keep(int64_t now_ms, const Digest& program);
  // True when it was one of them. It is in the store now, and memory says something else of it.
  bool stored(const Digest& program) { return kept_.erase(program) > 0; }
  // Those whose time is over, each once.
  std::vector<Digest> take_due(int64_t now_ms);

 private:
  struct Kept {
    int64_t wait_ms = 0, due_ms = 0;
    bool given_up = false;  // stays as long again, to know how long the next wait is
  };
  std::unordered_map<Digest, Kept> kept_;
  std::vector<Digest> too_many_;
};

}  // namespace kiln
