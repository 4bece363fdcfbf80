// State of a fiber, and who moves it:
//
//   fresh --resume()--> running --meet()--> waiting --release()--> running
//                          `----run_thread()'s end----> ended
//   running --fault() or a signal--> abandoned, and the launch with it
//
// Invariants
//  1. Code of a kernel runs only inside resume(), on a fiber's stack; everything else of the engine
//     runs on the stack of the caller of run_grid().
//  2. *launch.current is the thread that runs.
//  3. A meeting is complete when every thread of its warp, block or cluster waits at it. One that
//     can't become complete any more is a fault.
#include "tests/support/fake_cuda/grid.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "compiler_core/base/check.h"
#include "tests/support/fake_cuda/fiber.h"
#include "tests/support/fake_cuda/guarded_memory.h"
#include "tests/support/fake_cuda/late_copies.h"

namespace kiln::testing {
namespace {

using kiln_fake::FaultKind;
using kiln_fake::kWarpThreads;
using kiln_fake::Meeting;
using kiln_fake::Thread;

// Not a power of two: the tops of all stacks would share a few lines of the cache.
constexpr long kStackBytes = (64 << 10) + 13 * 64;
constexpr uint64_t kStackEnd = 0x6b696c6e66616b65;  // at a stack's far end, to see it overflow

// What ends a launch, as it is noted where little may run: on a fiber's stack, which is left for
// good, or in a signal handler.
struct FaultNote {
  FaultKind kind = FaultKind::kLaunchFailed;
  const char* message = nullptr;  // null: none
  const void* address = nullptr;
  unsigned line = 0;  // of the source; 0: unknown
};

struct Fiber {
  void* place = nullptr;  // where it goes on
  char* stack = nullptr;  // null before the first resume and after the end
  Meeting waits = Meeting::kNone;
  LateCopies<SharedCopy> copies;
  LateCopies<BoxStore> boxes;
};

// Stacks, kept between launches.
class StackPool {
 public:
  char* take() {
    if (free_.empty()) add();
    char* stack = free_.back();
    free_.pop_back();
    return stack;
  }
  void give(char* stack) { free_.push_back(stack); }
  // After a fault: the fibers that held stacks are gone.
  void give_all() { free_ = all_; }

 private:
  void add() {
    constexpr int kAtOnce = 64;
    void* memory = ::mmap(nullptr, kAtOnce * kStackBytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(memory != MAP_FAILED, "memory for stacks");
    for (int i = kAtOnce; i-- > 0;) {
      char* stack = static_cast<char*>(memory) + i * kStackBytes;
      std::memcpy(stack, &kStackEnd, sizeof kStackEnd);
      all_.push_back(stack);
      free_.push_back(stack);
    }
  }
  std::vector<char*> all_, free_;
};

std::string_view name_of(Meeting meeting) {
  switch (meeting) {
    case Meeting::kNone:
      return "nothing";
    case Meeting::kWarp:
      return "a warp barrier";
    case Meeting::kShuffle:
      return "a shuffle";
    case Meeting::kMatrix:
      return "a matrix operation";
    case Meeting::kBlock:
      return "a block barrier";
    case Meeting::kCluster:
      return "a cluster barrier";
    case Meeting::kPhase:
      return "a barrier in shared memory";
  }
  return "";
}
bool is_of_warp(Meeting meeting) {
  return meeting == Meeting::kWarp || meeting == Meeting::kShuffle || meeting == Meeting::kMatrix;
}

// For functions on a fiber's stack that may be left for good: a sanitizer would take what it has
// marked of their frames for errors of the next fiber.
#define KILN_NO_SANITIZERS __attribute__((no_sanitize("address", "thread", "undefined")))

class Grid {
 public:
  std::optional<GridFault> run(const GridLaunch& launch);
  // From a signal handler: whether a kernel was running, in which case `context` goes on in
  // resume().
  bool take_signal(int signal, const void* address, ucontext_t* context);

 private:
  // On a fiber's stack.
  KILN_NO_SANITIZERS static void run_thread();
  KILN_NO_SANITIZERS static void meet(Meeting meeting);
  static void copy_later(void* shared, const void* global, int bytes, int size);
  static void commit_copies();
  static void finish_copies(int groups_left);
  static void box_later(const kiln_fake::TensorMap* map, const char* from, const int* at,
                        BoxStore::Write write);
  static void commit_boxes();
  static void finish_boxes(int groups_left);
  KILN_NO_SANITIZERS static void fault(FaultKind kind, const char* message, const void* address,
                                       unsigned line);

  // On the caller's.
  void prepare(const GridLaunch& launch);
  void run_cluster(unsigned first_block);
  void run_warp(int first, int lanes);
  void resume(int i);
  void release(int first, int count);
  bool meet_warp(int first, int lanes);
  bool meet_all(int first, int count, Meeting meeting);
  bool look_again();
  void report_stuck();
  void set_fault(FaultKind kind, std::string message, const void* address);

  Fiber& current_fiber() { return fibers_[static_cast<size_t>(running_)]; }
  std::string where(int i) const;

  const GridLaunch* launch_ = nullptr;
  int fibers_count_ = 0;
  std::vector<Thread> threads_;
  std::vector<Fiber> fibers_;
  std::vector<GuardedMemory> shared_;  // a block of the cluster
  int shared_bytes_ = -1;
  StackPool stacks_;
  void* engine_place_ = nullptr;       // where resume() goes on
  volatile int running_ = -1;          // the fiber that runs
  long phases_ = 0, seen_phases_ = 0;  // of barriers in shared memory
  int looks_ = 0;                      // calls of look_again() that let some go on
  bool late_ = false;                  // one waits for a phase that may have ended
  FaultNote note_;                     // by the fiber or a signal handler, while one runs
  bool faulted_ = false;
  GridFault fault_;
};

// Never destroyed: a kernel that hangs still uses it when the process exits.
Grid& grid() {
  static Grid& only = *new Grid;
  return only;
}

// ---- On a fiber's stack.

void Grid::run_thread() {
  Grid& g = grid();
  g.launch_->entry.call(g.launch_->parameters);
  const int i = g.running_;
  g.threads_[static_cast<size_t>(i)].ended = true;
  void* nowhere;
  kiln_fake_switch(&nowhere, g.engine_place_);
}

void Grid::meet(Meeting meeting) {
  Grid& g = grid();
  Fiber& fiber = g.current_fiber();
  fiber.waits = meeting;
  kiln_fake_switch(&fiber.place, g.engine_place_);
}

void Grid::copy_later(void* shared, const void* global, int bytes, int size) {
  grid().current_fiber().copies.add(
      {static_cast<char*>(shared), static_cast<const char*>(global), bytes, size});
}

void Grid::commit_copies() {
  grid().current_fiber().copies.commit();
}

void Grid::finish_copies(int groups_left) {
  grid().current_fiber().copies.finish(groups_left);
}

void Grid::box_later(const kiln_fake::TensorMap* map, const char* from, const int* at,
                     BoxStore::Write write) {
  BoxStore store{map, from, {}, write};
  std::copy_n(at, map->rank, store.at);
  grid().current_fiber().boxes.add(store);
}

void Grid::commit_boxes() {
  grid().current_fiber().boxes.commit();
}

void Grid::finish_boxes(int groups_left) {
  grid().current_fiber().boxes.finish(groups_left);
}

void Grid::fault(FaultKind kind, const char* message, const void* address, unsigned line) {
  Grid& g = grid();
  g.note_ = {kind, message, address, line};
  void* nowhere;
  kiln_fake_switch(&nowhere, g.engine_place_);
}

// ---- On the caller's stack.

std::string Grid::where(int i) const {
  const Thread& thread = threads_[static_cast<size_t>(i)];
  return fmt::format("kernel {}, block {}, thread {}", launch_->entry.name, thread.block,
                     thread.index);
}

void Grid::set_fault(FaultKind kind, std::string message, const void* address) {
  faulted_ = true;
  fault_ = {kind, fmt::format("{}: {}", where(running_), message), address};
}

void Grid::resume(int i) {
  Fiber& fiber = fibers_[static_cast<size_t>(i)];
  Thread& thread = threads_[static_cast<size_t>(i)];
  if (fiber.stack == nullptr) {
    fiber.stack = stacks_.take();
    fiber.place = fresh_stack(fiber.stack, kStackBytes, &Grid::run_thread);
  }
  fiber.waits = Meeting::kNone;
  running_ = i;
  *launch_->current = &thread;
  kiln_fake_switch(&engine_place_, fiber.place);
  if (note_.message != nullptr) {
    const std::string line =
        note_.line == 0 ? "" : fmt::format(", line {} of the source", note_.line);
    set_fault(note_.kind, note_.message + line, note_.address);
  }
  if (faulted_ || !thread.ended) return;
  uint64_t end;
  std::memcpy(&end, fiber.stack, sizeof end);
  if (end != kStackEnd) set_fault(FaultKind::kLaunchFailed, "its stack overflowed", nullptr);
  stacks_.give(fiber.stack);
  fiber.stack = nullptr;
}

void Grid::release(int first, int count) {
  for (int i = first; i < first + count; ++i)
    fibers_[static_cast<size_t>(i)].waits = Meeting::kNone;
}

// Every lane waits at the same thing of the warp, or at nothing of it.
bool Grid::meet_warp(int first, int lanes) {
  int waiting = -1;
  for (int i = first; i < first + lanes && waiting < 0; ++i)
    if (is_of_warp(fibers_[static_cast<size_t>(i)].waits)) waiting = i;
  if (waiting < 0) return false;
  const Meeting meeting = fibers_[static_cast<size_t>(waiting)].waits;
  for (int i = first; i < first + lanes; ++i) {
    const Meeting other = fibers_[static_cast<size_t>(i)].waits;
    if (other == meeting) continue;
    if (other == Meeting::kPhase) return false;
    running_ = waiting;
    const bool ended = threads_[static_cast<size_t>(i)].ended;
    set_fault(FaultKind::kLaunchFailed,
              fmt::format("waits at {} that never completes: thread {} {}{}", name_of(meeting),
                          threads_[static_cast<size_t>(i)].index, ended ? "has ended" : "waits at ",
                          ended ? "" : name_of(other)),
              nullptr);
    return false;
  }
  release(first, lanes);
  return true;
}

// Runs the warp until all its lanes wait for other warps or have ended.
void Grid::run_warp(int first, int lanes) {
  do {
    for (int n = 0; n < lanes; ++n) {
      const int i = launch_->reversed ? first + lanes - 1 - n : first + n;
      if (threads_[static_cast<size_t>(i)].ended ||
          fibers_[static_cast<size_t>(i)].waits != Meeting::kNone)
        continue;
      resume(i);
      if (faulted_) return;
    }
  } while (meet_warp(first, lanes) && !faulted_);
}

bool Grid::meet_all(int first, int count, Meeting meeting) {
  for (int i = first; i < first + count; ++i)
    if (fibers_[static_cast<size_t>(i)].waits != meeting) return false;
  release(first, count);
  return true;
}

// Lets those look again that wait for a phase of a barrier, when one has ended. In reversed order one
// warp after another comes late for a while, as long as others go on: what they do may miss it out.
bool Grid::look_again() {
  constexpr int kLooks = 64;  // for which one warp is late
  const bool ended = phases_ != seen_phases_;
  if (!ended && !late_) return false;
  seen_phases_ = phases_;
  const int warps = (fibers_count_ + kWarpThreads - 1) / kWarpThreads;
  const int late = ended && launch_->reversed ? looks_++ / kLooks % warps : -1;
  late_ = false;
  for (int i = 0; i < fibers_count_; ++i) {
    Fiber& fiber = fibers_[static_cast<size_t>(i)];
    if (fiber.waits != Meeting::kPhase) continue;
    if (i / kWarpThreads == late)
      late_ = true;
    else
      fiber.waits = Meeting::kNone;
  }
  return true;
}

// Nobody can go on: names one that waits, and one that keeps it waiting.
void Grid::report_stuck() {
  int waiting = 0;
  while (fibers_[static_cast<size_t>(waiting)].waits == Meeting::kNone) ++waiting;
  const Meeting meeting = fibers_[static_cast<size_t>(waiting)].waits;
  int other = 0;
  while (fibers_[static_cast<size_t>(other)].waits == meeting &&
         (meeting == Meeting::kCluster || threads_[static_cast<size_t>(other)].block ==
                                              threads_[static_cast<size_t>(waiting)].block))
    ++other;
  const Thread& thread = threads_[static_cast<size_t>(other)];
  running_ = waiting;
  set_fault(
      FaultKind::kLaunchFailed,
      fmt::format("waits at {} that never completes: thread {} of block {} {}", name_of(meeting),
                  thread.index, thread.block,
                  thread.ended ? std::string("has ended")
                               : fmt::format("waits at {}",
                                             name_of(fibers_[static_cast<size_t>(other)].waits))),
      nullptr);
}

void Grid::run_cluster(unsigned first_block) {
  const int threads = launch_->threads, cluster = launch_->cluster;
  for (int i = 0; i < fibers_count_; ++i) {
    Thread& thread = threads_[static_cast<size_t>(i)];
    Fiber& fiber = fibers_[static_cast<size_t>(i)];
    thread.block = first_block + static_cast<unsigned>(thread.rank);
    thread.ended = false;
    thread.waited = thread.has_begun = false;
    thread.turn = 0;
    thread.registers = 0;
    for (auto& barrier : thread.numbered) barrier = {};
    fiber.copies.clear();
    fiber.boxes.clear();
  }
  for (int b = 0; b < cluster; ++b)
    std::memset(shared_[static_cast<size_t>(b)].data(), launch_->poison,
                static_cast<size_t>(launch_->shared_bytes));
  for (;;) {
    for (int n = 0; n < cluster; ++n) {
      const int block = launch_->reversed ? cluster - 1 - n : n;
      const int warps = (threads + kWarpThreads - 1) / kWarpThreads;
      for (int m = 0; m < warps; ++m) {
        const int warp = launch_->reversed ? warps - 1 - m : m;
        const int lanes = std::min(kWarpThreads, threads - warp * kWarpThreads);
        run_warp(block * threads + warp * kWarpThreads, lanes);
        if (faulted_) return;
      }
    }
    bool goes_on = look_again();
    goes_on |= meet_all(0, fibers_count_, Meeting::kCluster);
    for (int b = 0; b < cluster; ++b) goes_on |= meet_all(b * threads, threads, Meeting::kBlock);
    if (goes_on) continue;
    for (int i = 0; i < fibers_count_; ++i)
      if (!threads_[static_cast<size_t>(i)].ended) return report_stuck();
    return;
  }
}

void Grid::prepare(const GridLaunch& launch) {
  launch_ = &launch;
  note_ = {};
  faulted_ = false;
  fault_ = {};
  fibers_count_ = launch.threads * launch.cluster;
  const auto count = static_cast<size_t>(fibers_count_);
  threads_.assign(count, {});
  fibers_.resize(std::max(fibers_.size(), count));
  if (shared_bytes_ != launch.shared_bytes) shared_.clear();
  shared_bytes_ = launch.shared_bytes;
  while (shared_.size() < static_cast<size_t>(launch.cluster))
    shared_.push_back(GuardedMemory::make({static_cast<size_t>(launch.shared_bytes), 16}));
  for (int i = 0; i < fibers_count_; ++i) {
    Thread& thread = threads_[static_cast<size_t>(i)];
    fibers_[static_cast<size_t>(i)].waits = Meeting::kNone;
    fibers_[static_cast<size_t>(i)].stack = nullptr;
    const int index = i % launch.threads, lane = index % kWarpThreads;
    thread.index = index;
    thread.rank = i / launch.threads;
    thread.cluster_size = launch.cluster;
    thread.blocks = launch.blocks;
    thread.shared = reinterpret_cast<char*>(shared_[static_cast<size_t>(thread.rank)].data());
    thread.shared_bytes = launch.shared_bytes;
    thread.warp = &thread - lane;
    thread.warp_lanes = std::min(kWarpThreads, launch.threads - (index - lane));
    thread.cluster = threads_.data();
    thread.block_threads = launch.threads;
    thread.unready = launch.unready.data();
    thread.unready_count = static_cast<int>(launch.unready.size());
    thread.meet = &Grid::meet;
    thread.phases = &phases_;
    thread.copy_later = &Grid::copy_later;
    thread.commit_copies = &Grid::commit_copies;
    thread.finish_copies = &Grid::finish_copies;
    thread.box_later = &Grid::box_later;
    thread.commit_boxes = &Grid::commit_boxes;
    thread.finish_boxes = &Grid::finish_boxes;
    thread.fault = &Grid::fault;
  }
}

std::optional<GridFault> Grid::run(const GridLaunch& launch) {
  prepare(launch);
  const unsigned clusters = launch.blocks / static_cast<unsigned>(launch.cluster);
  for (unsigned n = 0; n < clusters && !faulted_; ++n) {
    const unsigned cluster = launch.reversed ? clusters - 1 - n : n;
    run_cluster(cluster * static_cast<unsigned>(launch.cluster));
    for (int b = 0; b < launch.cluster && !faulted_; ++b)
      if (const std::string damage = shared_[static_cast<size_t>(b)].damage(); !damage.empty()) {
        running_ = b * launch.threads;
        shared_.clear();
        set_fault(FaultKind::kIllegalAddress,
                  "its block wrote outside its shared memory, " + damage, nullptr);
      }
  }
  running_ = -1;
  if (!faulted_) return std::nullopt;
  stacks_.give_all();
  return fault_;
}

bool Grid::take_signal(int signal, const void* address, ucontext_t* context) {
  if (running_ < 0) return false;
  switch (signal) {
    case SIGFPE:
      note_ = {FaultKind::kLaunchFailed, "integer division by zero", nullptr, 0};
      break;
    case SIGILL:
      note_ = {FaultKind::kLaunchFailed, "a trap", nullptr, 0};
      break;
    default:
      note_ = {FaultKind::kIllegalAddress, "access to what is no memory", address, 0};
  }
  context->uc_mcontext.gregs[REG_RSP] = reinterpret_cast<greg_t>(engine_place_);
  context->uc_mcontext.gregs[REG_RIP] = reinterpret_cast<greg_t>(&kiln_fake_resume);
  return true;
}

// ---- Signals: taken while a grid runs, given back after it.

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct sigaction g_before[4];
pthread_t g_runner;

void on_signal(int signal, siginfo_t* info, void* context) {
  if (pthread_equal(pthread_self(), g_runner) != 0 &&
      grid().take_signal(signal, info->si_addr, static_cast<ucontext_t*>(context)))
    return;
  // Not ours: as if we had never been here, on the instruction's second try.
  for (int i = 0; i < 4; ++i)
    if (kSignals[i] == signal) ::sigaction(signal, &g_before[i], nullptr);
}

// A signal on a fiber's stack may have no room there.
struct SignalGuard {
  SignalGuard() : stack(64 << 10) {
    g_runner = pthread_self();
    stack_t alternate = {};
    alternate.ss_sp = stack.data();
    alternate.ss_size = stack.size();
    CHECK(::sigaltstack(&alternate, &stack_before) == 0, "sigaltstack");
    struct sigaction action = {};
    action.sa_sigaction = &on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int i = 0; i < 4; ++i) ::sigaction(kSignals[i], &action, &g_before[i]);
  }
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
  ~SignalGuard() {
    for (int i = 0; i < 4; ++i) ::sigaction(kSignals[i], &g_before[i], nullptr);
    ::sigaltstack(&stack_before, nullptr);
  }
  std::vector<char> stack;
  stack_t stack_before = {};
};

}  // namespace

std::optional<GridFault> run_grid(const GridLaunch& launch) {
  CHECK(launch.threads > 0 && launch.threads <= 1024 && launch.cluster > 0 &&
            launch.blocks % static_cast<unsigned>(launch.cluster) == 0,
        "a launch that no device would take");
  static std::mutex& one_at_a_time = *new std::mutex;
  const std::lock_guard lock(one_at_a_time);
  const SignalGuard signals;
  return grid().run(launch);
}

}  // namespace kiln::testing
