// AuditTrail: the acts of this coordinator (cache/admin_act.h) on their way to the store, and to the
// log, which has each as an `admin` line at once. An act that the store cannot take now waits here
// until it can; a coordinator that ends before leaves it to its log. The loop's thread.
#pragma once

#include <deque>
#include <functional>
#include <string>

#include "cache/store.h"
#include "coordinator/event_loop.h"

namespace kiln {

class AuditTrail {
 public:
  // All of them outlive the store's last answer. `coordinator`: where this one is, for people.
  AuditTrail(Store& store, EventLoop& loop, std::string coordinator)
      : store_(store), loop_(loop), coordinator_(std::move(coordinator)) {}

  // An act of now.
  AdminAct begin(std::string who, std::string request) const;
  // `then` is called once the store has it, or could not take it. Never before note() returns.
  void note(const AdminAct& act, std::function<void()> then = {});
  // An act that the store noted with what it did: the log alone is left.
  void was_noted(const AdminAct& act);
  // About once a second: those that wait are tried again.
  void tick();

  const std::deque<AdminAct>& waiting() const { return waiting_; }  // the latest first
  int64_t count() const { return count_; }                          // so far

 private:
  static constexpr size_t kMostWaiting = 1'000;

  void wait(AdminAct act);

  Store& store_;
  EventLoop& loop_;
  const std::string coordinator_;
  std::deque<AdminAct> waiting_;
  bool tries_again_ = false;
  int64_t count_ = 0;
};

}  // namespace kiln
