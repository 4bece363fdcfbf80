// Invariants:
//  1. claims_ holds (generation, ranges left) in one word. A range is claimed by lowering the count
//     with a compare-and-swap, so a worker that wakes late finds nothing left or a new generation,
//     and never touches a launch that is over.
//  2. The launch's plain fields (body_, context_, ...) are written while no range is left, and read
//     only by a thread that holds a range: run() cannot return, nor they change, before that range
//     is counted in finished_.
//
//   worker:  idle --work_on_claims--> running --no range left--> spinning --kSpins--> asleep
//   (futex) caller:  run: publish --> work_on_claims --> wait until finished_ == ranges_
#include "compiler_core/runtime/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "compiler_core/base/check.h"
#include "compiler_core/program/target.h"
#include "compiler_core/runtime/aligned_buffer.h"

namespace kiln {
namespace {

// About 30 us: longer than the gap between two launches of a program, shorter than anybody's slice.
constexpr int kSpins = 700;
// Ranges a thread: enough that a thread which lost its core for a while is helped by the others.
constexpr int kRangesPerThread = 8;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// Returns once `word` differs from `old`: spins, then sleeps.
void wait_while_equal(const std::atomic<int>& word, int old) {
  for (int i = 0; i < kSpins; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    pause();
  }
  word.wait(old, std::memory_order_acquire);
}

constexpr uint64_t ranges_left(uint64_t claims) {
  return claims & 0xffffffffu;
}
constexpr uint64_t next_generation(uint64_t claims) {
  return ((claims >> 32) + 1) << 32;
}

}  // namespace

struct ThreadPool::Impl {
  explicit Impl(int count) : scratch(static_cast<size_t>(count)) {
    for (int thread = 1; thread < count; ++thread)
      workers.emplace_back([this, thread] { serve(thread); });
  }

  ~Impl() {
    stopping.store(true, std::memory_order_relaxed);
    wakeups.fetch_add(1, std::memory_order_release);
    wakeups.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  void serve(int thread) {
    for (int seen = 0;;) {
      wait_while_equal(wakeups, seen);
      seen = wakeups.load(std::memory_order_acquire);
      if (stopping.load(std::memory_order_relaxed)) return;
      work_on_claims(thread);
    }
  }

  void work_on_claims(int thread) {
    uint64_t seen = claims.load(std::memory_order_acquire);
    while (ranges_left(seen) != 0) {
      if (!claims.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel)) continue;
      const int last = ranges;
      const int64_t range = last - static_cast<int64_t>(ranges_left(seen));
      // The first `longer` ranges have one block more.
      const int64_t shorter = blocks / last, longer = blocks % last;
      const int64_t begin = range * shorter + std::min(range, longer);
      body(context, begin, begin + shorter + (range < longer ? 1 : 0), thread);
      // After the last one counts, the caller may publish the next launch: the fields are its own.
      if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 == last) finished.notify_one();
      seen = claims.load(std::memory_order_acquire);
    }
  }

  void run() {
    finished.store(0, std::memory_order_relaxed);
    const uint64_t generation = next_generation(claims.load(std::memory_order_relaxed));
    claims.store(generation | static_cast<uint64_t>(ranges), std::memory_order_release);
    wakeups.fetch_add(1, std::memory_order_release);
    wakeups.notify_all();
    work_on_claims(0);
    for (int done; (done = finished.load(std::memory_order_acquire)) != ranges;)
      wait_while_equal(finished, done);
  }

  // Constant after construction.
  std::vector<std::thread> workers;

  // The launch: see invariant 2.
  Body body = nullptr;
  void* context = nullptr;
  int64_t blocks = 0;
  int ranges = 0;
  std::vector<AlignedBuffer> scratch;  // by thread; grows between launches

  // Shared, each on its own cache line.
  alignas(64) std::atomic<uint64_t> claims{0};
  // Ints: the type whose wait() sleeps on a futex of its own.
  alignas(64) std::atomic<int> finished{0};
  alignas(64) std::atomic<int> wakeups{0};
  std::atomic<bool> stopping{false};
};

ThreadPool::ThreadPool(int threads) {
  CHECK(threads >= 0, "a number of threads, or 0 for one per core");
  impl_ = std::make_unique<Impl>(threads > 0 ? threads : std::max(1, host_cpu_target().units));
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::threads() const {
  return static_cast<int>(impl_->scratch.size());
}

void ThreadPool::run(int64_t blocks, Body body, void* context) {
  if (blocks <= 0) return;
  if (blocks == 1 || impl_->workers.empty()) {
    body(context, 0, blocks, 0);
    return;
  }
  impl_->body = body;
  impl_->context = context;
  impl_->blocks = blocks;
  impl_->ranges = static_cast<int>(std::min<int64_t>(blocks, threads() * kRangesPerThread));
  impl_->run();
}

void ThreadPool::reserve_scratch(int64_t bytes) {
  for (AlignedBuffer& buffer : impl_->scratch)
    CHECK(buffer.reserve(bytes).has_value(), "scratch is a few megabytes a thread");
}

void* ThreadPool::scratch(int thread) const {
  return impl_->scratch[static_cast<size_t>(thread)].data();
}

}  // namespace kiln
