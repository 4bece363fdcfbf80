// ActLog: what operators asked of the coordinator since it started, and what came of it; the last
// ones. Plain value; one thread.
#pragma once

#include <deque>
#include <string>

namespace kiln {

struct AdminAct {
  int64_t number = 0;   // from 1
  int64_t at_ms = 0;    // Unix time
  std::string who;      // the name of the key; empty: there are none
  std::string request;  // "drain gpu7"
  std::string outcome;  // as the log has it
  bool done = false;
};

class ActLog {
 public:
  static constexpr size_t kMost = 1'000;

  // Gives it its number, and returns that.
  int64_t add(AdminAct act) {
    act.number = ++last_;
    acts_.push_front(std::move(act));
    if (acts_.size() > kMost) acts_.pop_back();
    return last_;
  }
  const std::deque<AdminAct>& latest() const { return acts_; }  // first

 private:
  std::deque<AdminAct> acts_;
  int64_t last_ = 0;
};

}  // namespace kiln
