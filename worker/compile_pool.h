// CompilePool: at most `jobs` compiler processes at once. What was compiled before, in this process
// or an earlier one, comes from the object cache; what is being compiled is waited for, not started
// twice. Thread-safe. Its threads live as long as it does, since a compiler process dies with the
// thread that started it.
#pragma once

#include <condition_variable>
#include <deque>
#include <future>
#include <thread>
#include <unordered_map>

#include "compiler_core/compile/compiler.h"
#include "worker/object_cache.h"

namespace kiln {

struct Compiled {
  Result<Artifact> artifact;
  bool ran = false;  // a compiler ran for this request
  double ms = 0;
};

class CompilePool {
 public:
  // Without a cache, compiles again after a restart.
  CompilePool(HostCompiler compiler, int jobs, std::optional<ObjectCache> cache);
  ~CompilePool();  // what has not started fails as kUnavailable; waits for what has

  std::future<Compiled> compile(Source source, const Target& target);
  void stop();  // starts no compiler any more

 private:
  struct Task {
    Digest key;
    Source source;
    Target target;
  };
  void work();
  Compiled run(const Task& task);

  const HostCompiler compiler_;
  std::optional<ObjectCache> cache_;  // itself thread-safe
  std::mutex mu_;
  std::condition_variable changed_;
  bool stopping_ = false;                                                 // guarded by mu_
  std::deque<Task> tasks_;                                                // guarded by mu_
  std::unordered_map<Digest, std::vector<std::promise<Compiled>>> open_;  // guarded by mu_
  std::vector<std::thread> threads_;  // constant after construction
};

}  // namespace kiln
