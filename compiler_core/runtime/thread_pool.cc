// Invariants:
//  1. claims holds (generation, ranges left) in one word. Ranges are claimed by lowering the count
//     with a compare-and-swap, so a worker that wakes late finds nothing left or a new generation,
//     and never touches a launch that is over. The caller's first ranges are claimed as it
//     publishes.
//  2. The launch's non-atomic fields (body, context, ...) are written while no range is left, and
//     read only by a thread that holds a range: run() cannot return, nor they change, before the
//     ranges that others held are counted in finished, which each does once it finds none left.
//  3. A worker that is about to sleep says so in sleepers before it looks at claims for the last
//     time; the caller looks at sleepers after it has published. One of them sees the other.
//
//   worker:  spinning --new generation--> running --no range left--> spinning
//                 \--kSpins--> asleep (futex) --wake_all--> spinning
//   caller:  run: publish --> work_on_claims --> wait until the others finished the rest
//
// The cost is in cache lines that change cores: a launch is one line, a worker waits on that line
// itself, and each thread counts what it did once.
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

// About 30 us: longer than the gap between two launches of a program, shorter than a scheduler's
// time slice.
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

constexpr uint64_t ranges_left(uint64_t claims) {
  return claims & 0xffffffffu;
}
constexpr uint64_t generation_of(uint64_t claims) {
  return claims >> 32;
}

// Ranges that a thread takes at once: many while many are left, so that few claims are made; one
// by one in the end, so that all threads end together.
constexpr int ranges_at_once(uint64_t left, int threads) {
  return std::max(1, static_cast<int>(left) / (2 * threads));
}

}  // namespace

struct ThreadPool::Impl {
  explicit Impl(int count) : scratch(static_cast<size_t>(count)) {
    for (int thread = 1; thread < count; ++thread)
      workers.emplace_back([this, thread] { serve(thread); });
  }

  ~Impl() {
    stopping.store(true, std::memory_order_seq_cst);
    wake_all();
    for (std::thread& worker : workers) worker.join();
  }

  void serve(int thread) {
    for (uint64_t seen = 0;;) {
      wait_for_launch(seen);
      if (stopping.load(std::memory_order_relaxed)) return;
      seen = generation_of(launch.claims.load(std::memory_order_acquire));
      const int done = work_on_claims(0, 0, thread);
      if (done == 0) continue;
      // After the last one counts, the caller may publish the next launch: the fields are its own.
      finished.fetch_add(done, std::memory_order_acq_rel);
      finished.notify_one();
    }
  }

  // Returns once another launch than number `seen` was published, or a stop is requested.
  void wait_for_launch(uint64_t seen) {
    const auto published = [&] {
      return generation_of(launch.claims.load(std::memory_order_seq_cst)) != seen;
    };
    for (int i = 0; i < kSpins; ++i) {
      if (published()) return;
      pause();
    }
    const int before = wakeups.load(std::memory_order_acquire);
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    if (!published() && !stopping.load(std::memory_order_seq_cst))
      wakeups.wait(before, std::memory_order_acquire);
    sleepers.fetch_sub(1, std::memory_order_relaxed);
  }

  // Runs the `count` ranges from `first` on, which this thread holds already, and whatever else it
  // can claim. How many that were.
  int work_on_claims(int first, int count, int thread) {
    int done = 0;
    uint64_t seen = launch.claims.load(std::memory_order_acquire);
    for (;;) {
      if (count != 0) {
        launch.body(launch.context, launch.begin_of(first), launch.begin_of(first + count), thread);
        done += count;
        count = 0;
        seen = launch.claims.load(std::memory_order_acquire);
      }
      const uint64_t left = ranges_left(seen);
      if (left == 0) return done;
      const int some = ranges_at_once(left, threads());
      if (!launch.claims.compare_exchange_weak(seen, seen - static_cast<uint64_t>(some),
                                               std::memory_order_acq_rel))
        continue;
      first = launch.ranges - static_cast<int>(left);
      count = some;
    }
  }

  void run() {
    const int ranges = launch.ranges;  // another thread may not look at them once all are done
    const int first = ranges_at_once(static_cast<uint64_t>(ranges), threads());
    const uint64_t generation = generation_of(launch.claims.load(std::memory_order_relaxed)) + 1;
    finished.store(0, std::memory_order_relaxed);
    launch.claims.store(generation << 32 | static_cast<uint64_t>(ranges - first),
                        std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) != 0) wake_all();
    const int others = ranges - work_on_claims(0, first, 0);
    for (int done, spins = 0; (done = finished.load(std::memory_order_acquire)) != others;)
      if (spins++ < kSpins)
        pause();
      else
        finished.wait(done, std::memory_order_acquire);
  }

  void wake_all() {
    wakeups.fetch_add(1, std::memory_order_release);
    wakeups.notify_all();
  }

  int threads() const { return static_cast<int>(scratch.size()); }

  // Constant after construction, but for the scratch, which grows between launches.
  std::vector<AlignedBuffer> scratch;  // by thread
  std::vector<std::thread> workers;

  // The launch, on one cache line: see invariant 2.
  struct alignas(64) Published {
    std::atomic<uint64_t> claims{0};
    Body body = nullptr;
    void* context = nullptr;
    int64_t blocks = 0;
    int ranges = 0;

    // The first ranges have one block more, where they cannot be equal.
    int64_t begin_of(int range) const {
      return range * (blocks / ranges) + std::min<int64_t>(range, blocks % ranges);
    }
  };
  Published launch;
  // Ranges that workers did. Ints: the type whose wait() sleeps on a futex of its own.
  alignas(64) std::atomic<int> finished{0};
  alignas(64) std::atomic<int> sleepers{0};
  std::atomic<int> wakeups{0};
  std::atomic<bool> stopping{false};
};

ThreadPool::ThreadPool(int threads) {
  CHECK(threads >= 0, "a number of threads, or 0 for one per core");
  impl_ = std::make_unique<Impl>(threads > 0 ? threads : std::max(1, host_cpu_target().units));
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::threads() const {
  return impl_->threads();
}

void ThreadPool::run(int64_t blocks, Body body, void* context) {
  if (blocks <= 0) return;
  if (blocks == 1 || impl_->workers.empty()) {
    body(context, 0, blocks, 0);
    return;
  }
  impl_->launch.body = body;
  impl_->launch.context = context;
  impl_->launch.blocks = blocks;
  impl_->launch.ranges = static_cast<int>(std::min<int64_t>(blocks, threads() * kRangesPerThread));
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
