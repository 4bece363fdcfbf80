// FlightStore: programs accepted for tuning without a client (`kiln warm --detach`), in
// flights.sqlite beside the index: each with its graph, until it is done, or why it failed. A file
// of its own: a damaged index may be set aside and loses a cache; what was promised stays. Writes
// are done by a thread of its own, in order. Thread-safe.
//
// Invariant: what put() reported as stored survives the loss of power, until it ends.
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
#include "compiler_core/program/target.h"

namespace kiln {

struct StoredFlight {
  Digest graph;
  Target target;
  Mode mode = Mode::kDefault;
  std::optional<Error> failure{};
};

class FlightStore {
 public:
  // Creates the file. A damaged one is set aside, see warning(). kUnsupported when a newer Kiln
  // wrote it.
  static Result<std::unique_ptr<FlightStore>> open(const Path& file);
  ~FlightStore();                                          // after what was begun
  const std::string& warning() const { return warning_; }  // for the log; usually empty

  // `done` runs on the store's thread, once it is durable or with the error (a full disk is
  // kUnavailable, too much to write kOverloaded). May be empty.
  using Done = std::function<void(Status)>;
  // Replaces what there is of the same graph, target and mode; `failure` is not looked at.
  void put(const StoredFlight& flight, std::string graph_text, Done done);
  void remove(const StoredFlight& flight, Done done);
  // Keeps why it failed, and gives up its graph. Nothing happens when it is not there.
  void fail_for_good(const StoredFlight& flight, Error why, Done done);
  // Waits until everything asked for so far is done.
  void flush();

  struct Flights {
    std::vector<StoredFlight> flights;  // in the order they were put
    int64_t damaged = 0;                // rows of which nothing could be made: lost
  };
  Result<Flights> all();
  // Those rows go, so that they are told of no more.
  void remove_damaged(Done done);
  // kNotFound; kCorruption when it is not what was put.
  Result<std::string> graph_text(const StoredFlight& flight);

 private:
  struct Job {
    size_t bytes = 0;
    std::function<Status(Database&)> write;
    Done done;
  };
  FlightStore(Database db, std::string warning);
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
