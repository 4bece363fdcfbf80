// FakeDevice: what libfake_cuda.so's functions share: one GPU whose work is done by a thread of its
// own, in the order in which it was submitted whatever the stream, while the host goes on. As on a
// real one a fault appears at a later call, and then at every call until the context is gone.
//
// State of the context, and who moves it:
//   none --retain()--> good --work that fails--> lost
//     ^------ the last release(): memory given back ----'
// Thread-safe. Never destroyed: a kernel that hangs still runs when the process exits.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>

#include "tests/support/fake_cuda/guarded_memory.h"

namespace kiln::testing {

class FakeDevice {
 public:
  static constexpr int kSms = 4;
  static constexpr int kL2Bytes = 1 << 20;
  static constexpr int64_t kMemoryBytes = int64_t{2} << 30;
  static constexpr int kSharedBytes = 48 << 10;      // a block, without asking for more
  static constexpr int kMaxSharedBytes = 227 << 10;  // opted in

  static FakeDevice& instance();

  using Work = std::function<CUresult()>;  // an error is a fault of the device
  // The number of the work: all up to it is done when is_done() or wait() say so. Dropped when the
  // context is lost.
  uint64_t submit(Work work);
  bool is_done(uint64_t number);
  // Returns the context's error, if it has one.
  CUresult wait(uint64_t number);
  CUresult wait_for_all();
  CUresult error();

  void retain();
  void release();
  bool has_context();

  CUresult allocate(size_t bytes, CUdeviceptr* memory);
  CUresult free(CUdeviceptr memory);  // after all that was submitted
  size_t free_bytes();
  // [memory, memory + bytes) lies in one allocation.
  bool owns(CUdeviceptr memory, size_t bytes);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  bool started_ = false;
  std::deque<Work> queue_;
  uint64_t submitted_ = 0, done_ = 0;
  CUresult error_ = CUDA_SUCCESS;
  int references_ = 0;
  std::map<CUdeviceptr, GuardedMemory> memory_;
  size_t used_bytes_ = 0;
};

}  // namespace kiln::testing
