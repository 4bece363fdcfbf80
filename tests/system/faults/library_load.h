// LibraryLoad: threads that link Kiln's client and ask for programs all the time, run them and
// compare every number. Each asks over a connection of its own, which it renews now and then.
// Thread-safe.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/system/faults/small_program.h"

namespace kiln::testing {

class LibraryLoad {
 public:
  LibraryLoad(std::string endpoint, Path programs, int threads, int first_program,
              int programs_each);
  ~LibraryLoad();

  // So far. An error is one that a caller is told to expect of a service that is hurt: away,
  // overloaded, too late. `strange` are all others.
  struct Tally {
    std::atomic<int64_t> answers{0}, hits{0}, errors{0}, wrong{0}, strange{0}, late{0};
  };
  const Tally& tally() const { return tally_; }
  // The first strange, wrong or late answer; empty: none.
  std::string complaint() const;

 private:
  void ask_on(int first_program);
  void complain(const std::string& what);

  const std::string endpoint_;
  const Path programs_;
  const int programs_each_;
  Tally tally_;
  mutable std::mutex mu_;
  std::string complaint_;  // guarded by mu_
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace kiln::testing
