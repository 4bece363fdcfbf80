// EventLoop: the deciding thread (ServiceLoop, or a test's) as the other parts of a coordinator see
// it. Inbox: the queue through which other threads reach that thread.
#pragma once

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "coordinator/core/events.h"
#include "coordinator/status/log_line.h"

namespace kiln {

class EventLoop {
 public:
  using Job = std::function<void()>;

  // Runs `job` on the loop's thread soon. Thread-safe.
  virtual void post(Job job) = 0;

  // The loop's thread only:
  virtual void step(Event event) = 0;  // gives `event` to the core, and carries out its actions
  virtual int64_t now_ms() const = 0;  // the clock of Core::step
  virtual void log(const LogLine& line) const = 0;

 protected:
  ~EventLoop() = default;
};

// Thread-safe.
class Inbox {
 public:
  // `wake` makes the loop look here soon.
  explicit Inbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  void post(EventLoop::Job job) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    wake_();
  }
  std::vector<EventLoop::Job> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(jobs_, {});
  }

 private:
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::vector<EventLoop::Job> jobs_;  // guarded by mutex_
};

}  // namespace kiln
