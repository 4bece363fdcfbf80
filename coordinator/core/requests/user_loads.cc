#include "coordinator/core/requests/user_loads.h"

namespace kiln {

void UserLoads::add_task(const Digest& task, const std::string& user) {
  remove(task);
  if (user.empty()) return;
  tasks_[task] = {user, 0};
  ++loads_[user].tasks;
}

void UserLoads::add_candidates(const Digest& task, int64_t candidates) {
  const auto found = tasks_.find(task);
  if (found == tasks_.end()) return;
  found->second.candidates += candidates;
  loads_[found->second.user].candidates += candidates;
}

void UserLoads::remove(const Digest& task) {
  const auto found = tasks_.find(task);
  if (found == tasks_.end()) return;
  Load& load = loads_.at(found->second.user);
  load.candidates -= found->second.candidates;
  if (--load.tasks == 0) loads_.erase(found->second.user);
  tasks_.erase(found);
}

int UserLoads::tasks_of(const std::string& user) const {
  const auto found = loads_.find(user);
  return found == loads_.end() ? 0 : found->second.tasks;
}

int64_t UserLoads::candidates_of(const std::string& user) const {
  const auto found = loads_.find(user);
  return found == loads_.end() ? 0 : found->second.candidates;
}

}  // namespace kiln
