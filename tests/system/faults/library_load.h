// LibraryLoad: threads that link Kiln's client and ask for programs all the time, run them and
// compare every number. Each asks over a connection of its own, which it renews now and then. What
// was answered as stored must be a hit for whoever asks next, but while the store is hurt and until
// it was answered once more. Thread-safe.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "client/client.h"
#include "tests/system/faults/small_program.h"

namespace kiln::testing {

class LibraryLoad {
 public:
  LibraryLoad(ClientOptions client, Path programs, int threads, int first_program,
              int programs_each);
  ~LibraryLoad();

  // From now on misses, and answers from memory alone, may be; until demand(), which forgets what
  // was answered before.
  void excuse();
  void demand();

  // So far. An error is one that a caller is told to expect of a service that is hurt: away,
  // overloaded, too late. `strange` are all others.
  struct Tally {
    std::atomic<int64_t> answers{0}, hits{0}, demanded{0}, errors{0};
    std::atomic<int64_t> lost{0}, wrong{0}, strange{0}, late{0};
  };
  const Tally& tally() const { return tally_; }
  // The first lost, strange, wrong or late answer; empty: none.
  std::string complaint() const;

 private:
  void ask_on(int first_program);
  // REQUIRES: from a client that remembers nothing.
  void judge(const CompiledProgram& compiled, int program, int era_before,
             std::map<int, int>& stored);
  void complain(const std::string& what);

  const ClientOptions client_;
  const Path programs_;
  const int programs_each_;
  Tally tally_;
  mutable std::mutex mu_;
  std::string complaint_;    // guarded by mu_
  std::atomic<int> era_{0};  // odd: excused; promises are of one era
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace kiln::testing
