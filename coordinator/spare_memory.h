// SpareMemory: what malloc keeps after a burst (of large graphs, of thousands of connections) lies
// free in the arenas of the threads that took it from the wire, each up to what it held at most.
// It goes back to the system once the burst is over: the pages are handed back at a cost of
// milliseconds, and taken again at more, so not while there is much to do. What counts is what is
// in RAM and not in use: memory alone would not tell what is freed a while after the burst. One
// thread.
#pragma once

#include <cstdint>
#include <functional>

namespace kiln {

class SpareMemory {
 public:
  static constexpr double kGrowthBytes = 16 << 20;  // less is not worth it
  static constexpr int64_t kCalmTurns = 500;        // of the loop, in a second

  // `spare`: bytes of this process that are in RAM and that malloc has given to nobody, with some
  // that never change (code, stacks); `give_back`: all that is free.
  SpareMemory(std::function<double()> spare, std::function<void()> give_back)
      : spare_(std::move(spare)), give_back_(std::move(give_back)) {}
  SpareMemory();  // this process', by mallinfo2(3) and malloc_trim(3)

  // Once a second; `turns`: of the loop since it began. Whether memory was given back.
  bool tick(int64_t turns);

 private:
  const std::function<double()> spare_;
  const std::function<void()> give_back_;
  int64_t turns_ = 0;  // at the last tick
  double least_ = -1;  // spare since memory was last given back; below 0: no tick yet
};

}  // namespace kiln
