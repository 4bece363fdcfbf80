// DetachedQueue: programs that are tuned though nobody waits: a client asked with `detach`, the
// store has the graph, and the answer was `queued`. A program stays here until it is stored or has
// failed for good; failures are remembered with their reason. Plain value; CompileRequests, its
// owner, runs the compile tasks.
//
//   (DetachedStored, DetachedRecovered) -> queued <--> running -> done (forgotten) | failed
//                                            ^ a worker or the store was missing: again after a
//                                              while
//
// Bounds: programs accepted; programs running (a planned one holds memory, a queued one only its
// name); failures remembered (ForgetDetached drops the oldest).
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "coordinator/core/events.h"

namespace kiln {

class DetachedQueue {
 public:
  explicit DetachedQueue(const CoreOptions& options) : options_(options) {}

  static Digest key_of(const DetachedTask& task);
  // Whether the program is queued or running here.
  bool contains(const Digest& key) const { return entries_.contains(key); }
  bool full() const { return std::ssize(entries_) + std::ssize(coming_) >= options_.max_detached; }

  // Reserves a place for a program whose StoreDetached is on its way.
  void expect(const Digest& key) { coming_.insert(key); }
  bool coming(const Digest& key) const { return coming_.contains(key); }
  bool arrived(const Digest& key) { return coming_.erase(key) > 0; }  // false: was not expected

  // The store has it. `running`: its compile task is open already.
  void add(const DetachedTask& task, bool running);
  // It failed in an earlier incarnation; the failure is only reported.
  void recall_failure(const DetachedTask& task, const Error& why, std::vector<Action>& out);
  // Failures so far are reported no more.
  void forget_failures(std::vector<Action>& out);
  // Whether an open task that nobody waits for may go on, as one of max_detached_running.
  bool keeps_running(const Digest& key);
  // Its task ended early, so it waits for its turn again. Does nothing if it is not running.
  void postpone(const Digest& key);

  // The next program that may run now, marked as running. Looks at a few that wait, in turn.
  const DetachedTask* start_next(int64_t now_ms, const std::function<bool(const Target&)>& can_run);
  // The task of `key` ended. kUnavailable, kOverloaded and kDeadlineExceeded are tried again after
  // a delay that grows with each attempt; any other error is final. Does nothing if it is not here.
  void ended(int64_t now_ms, const Digest& key, const Status& outcome, std::vector<Action>& out);

  void add_stats(Stats& stats) const;

 private:
  struct Entry {
    DetachedTask task;
    int64_t try_again_ms = 0;  // the delay after the next failed attempt
    int64_t not_before_ms = 0;
    bool running = false;
    std::string trouble;  // why it was put off
  };
  struct Failed {
    Digest key;
    DetachedTask task;
    Error error;
  };
  void forget_failure(const Digest& key);

  const CoreOptions& options_;
  std::unordered_map<Digest, Entry> entries_;
  std::unordered_set<Digest> coming_;
  std::list<Digest> waiting_;    // keys not running, in turn
  std::deque<Failed> failures_;  // oldest first
  int running_ = 0;
};

}  // namespace kiln
