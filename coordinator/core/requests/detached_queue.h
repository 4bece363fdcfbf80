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

#include "coordinator/core/events.h"

namespace kiln {

class DetachedQueue {
 public:
  explicit DetachedQueue(const CoreOptions& options) : options_(options) {}

  static Digest key_of(const DetachedTask& task);  // the task's
  // Whether the program is queued or running here.
  bool contains(const Digest& key) const { return entries_.contains(key); }
  const DetachedTask* find(const Digest& key) const;  // null when it is not
  // Whether there is no place for one more of this user: a user has no more than are left for others.
  bool full(const std::string& user) const;

  // Reserves a place for a program whose StoreDetached is on its way.
  void expect(const Digest& key, const std::string& user);
  bool coming(const Digest& key) const { return coming_.contains(key); }
  bool arrived(const Digest& key);  // false: was not expected

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

  // The kernel at which its program is has cost so many processes, in this incarnation. How many the
  // program has cost in all, once they are too many; does nothing if it is not here.
  std::optional<int64_t> cost(const Digest& key, int64_t of_kernel, std::vector<Action>& out);

  // Forgets a program that is queued, runs or has failed, for whatever audience; the keys of its tasks.
  std::vector<Digest> cancel(const Digest& program, std::vector<Action>& out);

  // Names those that `viewer` may see; what a compiler said is for whoever queued the program.
  void add_stats(Stats& stats, const Viewer& viewer) const;

 private:
  struct Entry {
    DetachedTask task;
    int64_t try_again_ms = 0;  // the delay after the next failed attempt
    int64_t not_before_ms = 0;
    bool running = false;
    std::string trouble;      // why it was put off
    int64_t lost_before = 0;  // processes, before its last start; task.lost has all
  };
  struct Failed {
    Digest key;
    DetachedTask task;
    Error error;
  };
  DetachedTask take(const Digest& key);
  void forget_failure(const Digest& key);
  void leave(const std::string& user);
  static void name(Stats& stats, const Viewer& viewer, const DetachedTask& task,
                   std::string_view state, const std::string& reason);

  const CoreOptions& options_;
  std::unordered_map<Digest, Entry> entries_;
  std::unordered_map<Digest, std::string> coming_;  // with their users
  std::unordered_map<std::string, int> of_user_;  // of both; no zeros, and users without a name not
  std::list<Digest> waiting_;                     // keys not running, in turn
  std::deque<Failed> failures_;                   // oldest first
  int running_ = 0;
};

}  // namespace kiln
