// Interruption: what Ctrl-C (SIGINT) and SIGTERM do to a command that compiles. It says what becomes of
// the work, ends the compilers with their files, and ends as if nobody had handled the signal.
// Signals that are ignored (nohup) stay so. At most one at a time in a process.
#pragma once

#include <string>
#include <thread>

namespace kiln::cli {

class Interruption {
 public:
  explicit Interruption(std::string last_words);
  ~Interruption();  // the signals do what they did before
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

 private:
  void wait() const;

  const std::string last_words_;
  void (*before_[2])(int);
  std::thread waiting_;
};

}  // namespace kiln::cli
