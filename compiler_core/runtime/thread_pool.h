// ThreadPool: runs a grid of blocks. Workers spin briefly between launches, then sleep. One launch
// at a time; run() may be called from one thread at a time. Owns its threads and their scratch.
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
  ThreadPool& operator=(const ThreadPool&) = delete;
  int threads() const;

  // Calls body(context, begin, end, thread) over disjoint ranges that cover [0, blocks); returns
  // when all are done. thread < threads(). The body must not call run().
  using Body = void (*)(void* context, int64_t begin, int64_t end, int thread);
  void run(int64_t blocks, Body body, void* context);

  // At least `bytes` for each thread, 64-byte aligned; kept until a launch needs more. Shared by
  // all kernels that this pool runs, so that it stays warm. Not during run().
  void reserve_scratch(int64_t bytes);
  void* scratch(int thread) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
