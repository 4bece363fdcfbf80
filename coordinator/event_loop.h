// EventLoop: the deciding thread (ServiceLoop, or a test's) as the other parts of a coordinator see
// it; of a coordinator that follows, which has no core, only its JobQueue. Inbox: the queue through which other threads reach that thread.
#pragma once

#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "coordinator/core/events.h"
#include "coordinator/status/log_line.h"

namespace kiln {

class JobQueue {
 public:
  using Job = std::function<void()>;

  // Runs `job` on the loop's thread soon. Thread-safe.
  virtual void post(Job job) = 0;

 protected:
  ~JobQueue() = default;
};

class EventLoop : public JobQueue {
 public:
  // The loop's thread only:
  virtual void step(Event event) = 0;  // gives `event` to the core, and carries out its actions
  virtual int64_t now_ms() const = 0;  // the clock of Core::step
  virtual void log(const LogLine& line) const = 0;

 protected:
  ~EventLoop() = default;
};

// For a store's answer, which may come at once or on any thread: `then` runs on the loop's thread.
// REQUIRES: the caller is on it.
template <class T>
std::function<void(Result<T>)> on_loop(JobQueue& loop, std::function<void(Result<T>)> then) {
  return [&loop, then = std::move(then), loops = std::this_thread::get_id()](Result<T> answer) {
    if (std::this_thread::get_id() == loops) return then(std::move(answer));
    loop.post([then, answer = std::move(answer)]() mutable { then(std::move(answer)); });
  };
}

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
