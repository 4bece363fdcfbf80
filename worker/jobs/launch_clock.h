// LaunchClock: what a runner's launches took, as the operating system counts it and not as the runner
// says. Beside the wall clock stand what its process had of the cores, and how long its threads were
// ready and had none: on a machine with other work the wall clock alone contradicts honest kernels.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <vector>

namespace kiln {

struct LaunchCost {
  double wall_us = 0;
  double cpu_us = 0;     // of all threads of the process, also those that have ended
  double waited_us = 0;  // for a core: of the threads that launch, added up, and of who asks
};

// Whether launches that are said to take `said_us` on `threads` threads cannot have taken what they
// took: even without its waits more than four times that and 20 ms. A process that does its work
// elsewhere while its launching threads wait has used more of the cores than they could have.
bool contradicts(const LaunchCost& took, double said_us, int threads);

class LaunchClock {
 public:
  // From now on. The process's threads of this moment are those that launch: REQUIRES: nothing of
  // others has run in it. Where the system does not count waits they are 0.
  explicit LaunchClock(pid_t process);

  void restart();  // with the same threads
  LaunchCost elapsed() const;

 private:
  LaunchCost counted() const;

  const pid_t process_;
  std::vector<pid_t> threads_;
  std::chrono::steady_clock::time_point start_;
  LaunchCost before_;  // wall_us: 0
};

}  // namespace kiln
