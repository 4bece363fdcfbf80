// DetachedQueue: program flights that go on though nobody waits: a client asked with `detach`, the
// store has the graph, and the answer was `queued`. Here until the program is stored, or has failed
// for good; what failed is remembered with its reason. Plain value; RequestDesk, its owner, runs
// the flights themselves.
//
//   (FlightStored, FlightRecovered) -> queued <--> running -> done (forgotten) | failed
//                                        ^ a worker or the store was missing: after a while again
//
// Bounded: so many are taken in, so many run at once (a planned program holds memory, a queued one
// only its name), so many failures are remembered (ForgetFlight ends the oldest).
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

  // Wanted, though nobody waits: queued or running.
  bool contains(const Digest& key) const { return entries_.contains(key); }
  bool full() const { return std::ssize(entries_) + std::ssize(coming_) >= options_.max_detached; }

  // A StoreFlight of it is on its way, and has its place.
  void expect(const Digest& key) { coming_.insert(key); }
  bool coming(const Digest& key) const { return coming_.contains(key); }
  bool arrived(const Digest& key) { return coming_.erase(key) > 0; }  // false: it was not expected

  // The store has it. `running`: its flight is open already.
  void add(const DetachedFlight& flight, bool running);
  // It failed in an earlier life; only told about.
  void recall_failure(const DetachedFlight& flight, const Error& why, std::vector<Action>& out);
  // Nobody needs to be told of those that failed any more.
  void forget_failures(std::vector<Action>& out);
  // Its flight is open, and nobody waits for it: whether it goes on, as one of those that may run.
  bool keeps_running(const Digest& key);
  // Its flight is no more: it waits its turn. Nothing happens when it is not here, or waits.
  void postpone(const Digest& key);

  // The next that may run now; marked as running. Looks at a few that wait, in turn.
  const DetachedFlight* start_next(int64_t now_ms,
                                   const std::function<bool(const Target&)>& can_run);
  // The flight of `key` ended. kUnavailable, kOverloaded and kDeadlineExceeded are tried again
  // after a while, which grows with each attempt; with any other error it has failed. Nothing
  // happens when it is not here.
  void ended(int64_t now_ms, const Digest& key, const Status& outcome, std::vector<Action>& out);

  void add_stats(Stats& stats) const;

 private:
  struct Entry {
    DetachedFlight flight;
    int64_t try_again_ms = 0;  // after the next attempt that came to nothing
    int64_t not_before_ms = 0;
    bool running = false;
    std::string trouble;  // why it was put off
  };
  struct Failed {
    Digest key;
    DetachedFlight flight;
    Error error;
  };
  Digest key_of(const DetachedFlight& flight) const;
  void forget_failure(const Digest& key);

  const CoreOptions& options_;
  std::unordered_map<Digest, Entry> entries_;
  std::unordered_set<Digest> coming_;
  std::list<Digest> waiting_;    // keys not running, in turn
  std::deque<Failed> failures_;  // oldest first
  int running_ = 0;
};

}  // namespace kiln
