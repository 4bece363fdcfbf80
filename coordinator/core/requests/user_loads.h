// UserLoads: what each user has at work, so that no key takes every place: programs planned or tuned
// on its behalf, and their candidates. Users without a name (there are no keys) have no bound of
// their own. Plain value; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "compiler_core/base/digest.h"

namespace kiln {

class UserLoads {
 public:
  // The task is on this user's behalf from now on, and on nobody else's.
  void add_task(const Digest& task, const std::string& user);
  void add_candidates(const Digest& task, int64_t candidates);  // REQUIRES: add_task()
  void remove(const Digest& task);                              // does nothing when it is not here

  int tasks_of(const std::string& user) const;
  int64_t candidates_of(const std::string& user) const;

 private:
  struct Task {
    std::string user;
    int64_t candidates = 0;
  };
  struct Load {
    int tasks = 0;
    int64_t candidates = 0;
  };
  std::unordered_map<Digest, Task> tasks_;
  std::unordered_map<std::string, Load> loads_;  // no zeros
};

}  // namespace kiln
