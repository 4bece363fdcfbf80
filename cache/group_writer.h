// GroupWriter: the one thread that changes an index. Jobs run in the order they were submitted, many
// to a transaction (group commit), so that a burst pays once for making it durable. Thread-safe.
//
// One batch:
//
//   take -> prepare -> begin -> part, part, ... -> commit -> done, done, ...
//                                  \ the transaction is lost -> each job in one of its own -> done
//
// A job that fails undoes its own part only. When the transaction as a whole is lost (the disk is
// full, the database went away), each job is tried again alone, so that each hears its own error.
//
// An Index that is far has begin_together() as well: the batch is then tried without parts at first,
// so that its statements need not be answered one by one; when anything fails there, as above.
//
// An Index has begin, commit, roll_back, begin_part, end_part and undo_part (CacheIndex). Where jobs
// have something to be done ahead of the batch's transaction, an Ahead each, it has prepare() too.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "compiler_core/base/result.h"

namespace kiln {

template <class Index, class Ahead = std::monostate>
class GroupWriter {
 public:
  // Runs inside a transaction, on the writer's thread. It runs twice when its transaction had to be
  // undone, so it must be idempotent.
  using Job = std::function<Status(Index&)>;
  // Runs on the writer's thread once the job is durable, or has failed. May submit; must not flush.
  using Done = std::function<void(Status)>;

  explicit GroupWriter(Index index) : index_(std::move(index)), thread_([this] { run(); }) {}
  ~GroupWriter() { stop(); }

  // Waits until every job is answered, and ends the thread. REQUIRES: nobody submits any more.
  void stop() {
    {
      const std::scoped_lock lock(mu_);
      stopping_ = true;
    }
    work_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  // `bytes`: the job's size in memory. Beyond the queue's bound the job is dropped at once and
  // `done` hears kOverloaded, in its turn.
  void submit(size_t bytes, Job job, Done done, Ahead ahead = {}) {
    {
      const std::scoped_lock lock(mu_);
      if (queue_.size() >= kMaxQueuedJobs || queued_bytes_ + bytes > kMaxQueuedBytes) {
        job = nullptr;
        ahead = {};
        bytes = 0;
      }
      queue_.push_back({bytes, std::move(job), std::move(done), std::move(ahead)});
      queued_bytes_ += bytes;
      ++submitted_;
    }
    work_.notify_one();
  }

  // Waits until every job submitted so far has been answered.
  void flush() {
    std::unique_lock lock(mu_);
    idle_.wait(lock, [this, goal = submitted_] { return answered_ >= goal; });
  }

 private:
  static constexpr size_t kMaxQueuedJobs = 100'000;
  static constexpr size_t kMaxQueuedBytes = size_t{512} << 20;
  // Bounds how long the first of a batch waits for the last.
  static constexpr size_t kMaxBatchJobs = 1024;
  static constexpr bool kPrepares = !std::is_same_v<Ahead, std::monostate>;

  struct Entry {
    size_t bytes = 0;
    Job job;  // empty: refused
    Done done;
    Ahead ahead;
  };

  static Status refused() {
    return fail(Error{Code::kOverloaded, "the cache has too much to write", 1000});
  }

  void run() {
    for (;;) {
      std::vector<Entry> batch;
      {
        std::unique_lock lock(mu_);
        work_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
        if (queue_.empty()) return;
        const auto end =
            queue_.begin() + static_cast<std::ptrdiff_t>(std::min(queue_.size(), kMaxBatchJobs));
        batch.assign(std::make_move_iterator(queue_.begin()), std::make_move_iterator(end));
        queue_.erase(queue_.begin(), end);
        for (const Entry& entry : batch) queued_bytes_ -= entry.bytes;
      }
      if constexpr (kPrepares) {
        std::vector<Ahead> aheads;
        for (const Entry& entry : batch)
          if (entry.ahead) aheads.push_back(entry.ahead);
        if (!aheads.empty()) index_.prepare(aheads);
      }
      std::vector<Status> results = apply(batch);
      for (size_t i = 0; i < batch.size(); ++i)
        if (batch[i].done) batch[i].done(std::move(results[i]));
      {
        const std::scoped_lock lock(mu_);
        answered_ += batch.size();
      }
      idle_.notify_all();
    }
  }

  std::vector<Status> apply(const std::vector<Entry>& batch) {
    std::vector<Status> results(batch.size());
    if constexpr (requires(Index index) { index.begin_together(); })
      if (batch.size() > 1 && apply_together(batch)) return results;
    bool whole = index_.begin().has_value();
    for (size_t i = 0; whole && i < batch.size(); ++i) whole = apply_part(batch[i], results[i]);
    if (whole && index_.commit()) return results;
    index_.roll_back();  // also fine when nothing was begun
    for (size_t i = 0; i < batch.size(); ++i) results[i] = apply_alone(batch[i]);
    return results;
  }

  // False when any of it failed; then nothing is done.
  bool apply_together(const std::vector<Entry>& batch) {
    bool well = index_.begin_together().has_value();
    for (size_t i = 0; well && i < batch.size(); ++i)
      well = batch[i].job && batch[i].job(index_).has_value();
    if (well && index_.commit()) return true;
    index_.roll_back();
    return false;
  }

  // False when the transaction as a whole is lost, not only this entry.
  bool apply_part(const Entry& entry, Status& result) {
    if (!entry.job) {
      result = refused();
      return true;
    }
    if (!index_.begin_part()) return false;
    result = entry.job(index_);
    return (result ? index_.end_part() : index_.undo_part()).has_value();
  }

  Status apply_alone(const Entry& entry) {
    if (!entry.job) return refused();
    Status result = index_.begin();
    if (!result) return result;
    result = entry.job(index_);
    if (result) result = index_.commit();
    if (!result) index_.roll_back();
    return result;
  }

  Index index_;  // used by the thread only

  std::mutex mu_;
  std::condition_variable work_, idle_;
  std::deque<Entry> queue_;  // guarded by mu_, as is the rest
  size_t queued_bytes_ = 0;
  uint64_t submitted_ = 0, answered_ = 0;
  bool stopping_ = false;

  std::thread thread_;  // last: starts when the rest stands
};

}  // namespace kiln
