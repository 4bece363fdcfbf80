// SpareMemory: what malloc keeps after a burst (of large graphs, of thousands of connections) lies
// free in the arenas of the threads that took it from the wire, each up to what it held at most.
// It goes back to the system once the burst is over: the pages are handed back at a cost of
// milliseconds, and taken again at more, so not while there is much to do. One thread.
#pragma once

#include <cstdint>
#include <functional>

namespace kiln {

class SpareMemory {
 public:
  static constexpr double kGrowthBytes = 16 << 20;  // less is not worth it
  static constexpr int64_t kCalmTurns = 500;        // of the loop, in a second

  // `resident`: bytes of this process that are in RAM; `give_back`: all that is free.
  SpareMemory(std::function<double()> resident, std::function<void()> give_back)
      : resident_(std::move(resident)), give_back_(std::move(give_back)) {}
  SpareMemory();  // this process', by malloc_trim(3)

  // Once a second; `turns`: of the loop since it began. Whether memory was given back.
  bool tick(int64_t turns);

 private:
  const std::function<double()> resident_;
  const std::function<void()> give_back_;
  int64_t turns_ = 0;  // at the last tick
  double least_ = -1;  // bytes resident since memory was last given back; below 0: no tick yet
};

}  // namespace kiln
