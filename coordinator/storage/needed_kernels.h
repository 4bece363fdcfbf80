// NeededKernels: the kernels of programs that are being tuned. The store has no program that names
// them yet, so a full cache would evict the first kernels of a program that takes long; they count
// as used until it ends. Plain value; one thread.
#pragma once

#include <deque>
#include <vector>

#include "coordinator/core/events.h"

namespace kiln {

class NeededKernels {
 public:
  // A program that nobody waits for any more never ends here: after so long it is forgotten.
  static constexpr int64_t kLongestMs = 6 * 3'600'000;
  static constexpr size_t kMost = 1'000;  // programs; the oldest go first

  void planned(int64_t now_ms, const PlanFinished& plan);
  void ended(const Digest& program);
  std::vector<Digest> kernels(int64_t now_ms);

 private:
  struct Needed {
    Digest program;
    int64_t since_ms = 0;
    std::vector<Digest> kernels;
  };
  std::deque<Needed> programs_;  // oldest first
};

}  // namespace kiln
