// ThreadPool: walks a grid of blocks. Workers spin briefly between launches, then sleep. One launch
// at a time; run() may be called from one thread at a time.
#pragma once

#include <cstdint>
#include <memory>

namespace kiln {

class ThreadPool {
 public:
  // `threads` including the caller's; 0: one per core we may use.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  int threads() const;

  // Calls body(context, begin, end, thread) over disjoint ranges that cover [0, blocks); returns
  // when all are done. thread < threads().
  using Body = void (*)(void* context, int64_t begin, int64_t end, int thread);
  void run(int64_t blocks, Body body, void* context);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
