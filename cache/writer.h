// Writer: the one thread that changes a CacheIndex. Jobs run in the order they were submitted, many
// to a transaction (group commit), so that a burst pays for one sync of the disk. Thread-safe.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "cache/index.h"

namespace kiln {

class Writer {
 public:
  // Runs inside a transaction, on the writer's thread. It runs twice when its transaction had to be
  // undone, so it must be idempotent.
  using Job = std::function<Status(CacheIndex&)>;
  // Runs on the writer's thread once the job is durable, or has failed. May submit; must not flush.
  using Done = std::function<void(Status)>;

  explicit Writer(CacheIndex index);
  ~Writer();  // stops
  // Waits until every job is answered, and ends the thread. REQUIRES: nobody submits any more.
  void stop();

  // `bytes`: the job's size in memory. Beyond the queue's bound the job is dropped at once and
  // `done` hears kOverloaded, in its turn.
  void submit(size_t bytes, Job job, Done done);
  // Waits until every job submitted so far has been answered.
  void flush();

 private:
  struct Entry {
    size_t bytes = 0;
    Job job;  // empty: refused
    Done done;
  };
  void run();
  std::vector<Status> apply(const std::vector<Entry>& batch);
  // False when the transaction as a whole is lost, not only this entry.
  bool apply_part(const Entry& entry, Status& result);
  Status apply_alone(const Entry& entry);

  CacheIndex index_;  // used by the thread only

  std::mutex mu_;
  std::condition_variable work_, idle_;
  std::deque<Entry> queue_;  // guarded by mu_, as is the rest
  size_t queued_bytes_ = 0;
  uint64_t submitted_ = 0, answered_ = 0;
  bool stopping_ = false;

  std::thread thread_;  // last: starts when the rest stands
};

}  // namespace kiln
