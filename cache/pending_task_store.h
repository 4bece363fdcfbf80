// PendingTaskStore: programs accepted for tuning without a client (`kiln warm --detach`), each with
// its graph until it is done, or with the reason why it failed. They lie in flights.sqlite beside
// the index, a file of its own: a damaged index may be dropped, which loses a cache, but queued
// programs stay. A thread of its own writes, in order. Thread-safe.
//
// Invariant: a task that put() reported as stored survives the loss of power, until it ends.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cache/sqlite.h"
#include "compiler_core/program/audience.h"
#include "compiler_core/program/target.h"

namespace kiln {

struct PendingTask {
  Digest graph;
  Target target;
  Mode mode = Mode::kDefault;
  Audience audience{};  // the same program for another audience is another task
  std::string owner{};  // the user that queued it
  int64_t lost = 0;     // processes of workers that it has cost
  std::optional<Error> failure{};
};

class PendingTaskStore {
 public:
  // Creates the file. A damaged one is set aside (warning() says so). kUnsupported when a newer
  // Kiln wrote it.
  static Result<std::unique_ptr<PendingTaskStore>> open(const Path& file);
  ~PendingTaskStore();                                     // after every write that was asked for
  const std::string& warning() const { return warning_; }  // for the log; usually empty

  // `done` runs on the store's thread, once the write is durable or with the error (a full disk is
  // kUnavailable, a full queue kOverloaded). May be empty.
  using Done = std::function<void(Status)>;
  // Replaces the task of the same graph, target, mode and audience; `failure` is ignored.
  void put(const PendingTask& task, std::string graph_text, Done done);
  void remove(const PendingTask& task, Done done);
  // Keeps task.lost. Nothing happens when the task is not stored.
  void set_lost(const PendingTask& task, Done done);
  // Keeps the reason and drops the graph. Nothing happens when the task is not stored.
  void fail_for_good(const PendingTask& task, Error why, Done done);
  // Waits until every write asked for so far is done.
  void flush();

  struct Tasks {
    std::vector<PendingTask> tasks;  // in the order they were put
    int64_t damaged = 0;             // rows that could not be read: lost
  };
  Result<Tasks> all();
  // Removes those rows, so that they are reported no more.
  void remove_damaged(Done done);
  // kNotFound; kCorruption when the text does not match its digest.
  Result<std::string> graph_text(const PendingTask& task);

 private:
  struct Job {
    size_t bytes = 0;
    std::function<Status(Database&)> write;
    Done done;
  };
  PendingTaskStore(Database db, std::string warning);
  void submit(size_t bytes, std::function<Status(Database&)> write, Done done);
  void run();

  const std::string warning_;
  std::mutex db_mu_;
  Database db_;  // guarded by db_mu_

  std::mutex mu_;
  std::condition_variable work_, idle_;
  std::deque<Job> queue_;  // guarded by mu_, as is the rest
  size_t queued_bytes_ = 0;
  bool writing_ = false, stopping_ = false;

  std::thread thread_;  // last: starts when the rest stands
};

}  // namespace kiln
