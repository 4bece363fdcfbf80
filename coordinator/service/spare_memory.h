// SpareMemory: returns memory that malloc keeps after a burst (of large graphs, of thousands of
// connections) to the system. Such memory lies free in the arenas of the threads that allocated it,
// each up to its peak. Returning it costs milliseconds and taking it again costs more, so it
// happens only when there is little to do. What counts is resident memory that is not in use:
// resident size alone would not show what is freed some time after the burst. One thread.
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
