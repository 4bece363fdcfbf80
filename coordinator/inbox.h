// Inbox: what other threads ask the loop to do next. Thread-safe.
#pragma once

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace kiln {

class Inbox {
 public:
  using Task = std::function<void()>;
  // `wake` makes the loop look here soon.
  explicit Inbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  void post(Task task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    wake_();
  }
  std::vector<Task> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(tasks_, {});
  }

 private:
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::vector<Task> tasks_;  // guarded by mutex_
};

}  // namespace kiln
