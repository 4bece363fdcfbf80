// CompilePool: at most `jobs` compilers at once. What was compiled before, in this process or an
// earlier one, comes from the object cache; what is being compiled is waited for, not started
// twice. Thread-safe. Its threads live as long as it does, since a compiler process dies with the
// thread that started it.
//
//   asked for ──> queued ──> compiling ──> answered
//                   │            └── everybody who asked cancelled: interrupted ──> answered
//                   └── everybody who asked cancelled ──> answered
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <thread>
#include <unordered_map>

#include "worker/build/object_cache.h"
#include "worker/build/toolchain.h"

namespace kiln {

struct Compiled {
  Result<Artifact> artifact;
  bool ran = false;  // a compiler ran for this request
  double ms = 0;
  KernelResources resources = {};
  std::chrono::steady_clock::time_point ended{};  // of the compiler, where one ran
};

class CompilePool {
 public:
  // Without a cache, compiles again after a restart.
  CompilePool(Toolchain toolchain, int jobs, std::optional<ObjectCache> cache);
  ~CompilePool();  // stops, and waits for what has started

  // On behalf of `owner`, a lease.
  std::future<Compiled> compile(Source source, const Target& target, uint64_t owner = 0);
  // Fails what `owner` still waits for as kUnavailable; a compile ends when no other owner waits
  // for it.
  void cancel(uint64_t owner);
  // Fails every compile that has not started, and every request still open, as kUnavailable;
  // compiles that have started end soon where their tool can be closed.
  void stop();
  // Number of compilers that ran to an answer for leases, whether or not a lease still waited for
  // it. An answer is counted before its waiter gets it.
  int64_t compiled() const { return compiled_; }

 private:
  struct Waiter {
    uint64_t owner = 0;
    Recipe recipe;  // its own: kernels of the same text may be launched in different ways
    std::promise<Compiled> promise;
  };
  // The object that the tool made of a text: it is an artifact with the recipe of whoever waits for it.
  struct Outcome {
    Result<CompileTool::Object> object;
    bool ran = false;
    double ms = 0;
    std::chrono::steady_clock::time_point ended{};  // of the compiler, where one ran
  };
  struct Compile {
    Source source;  // constant; of its recipe the tool reads nothing
    Target target;  // constant
    std::vector<Waiter> waiters;
    CompileTool* tool = nullptr;  // that compiles it now
    bool interrupted = false;
    bool leased = false;  // a lease asked for it
  };
  void work();
  void serve(CompileTool& tool);
  Outcome run(const Digest& key, const Compile& compile, CompileTool& tool);

  const Toolchain toolchain_;
  std::optional<ObjectCache> cache_;  // itself thread-safe
  std::atomic<int64_t> compiled_{0};
  std::mutex mu_;
  std::condition_variable changed_;
  bool stopping_ = false;                     // guarded by mu_
  std::deque<Digest> queue_;                  // guarded by mu_; of open_
  std::unordered_map<Digest, Compile> open_;  // guarded by mu_
  std::vector<CompileTool*> tools_;           // guarded by mu_
  std::vector<std::thread> threads_;          // constant after construction
};

}  // namespace kiln
