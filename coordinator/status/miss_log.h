// MissLog: programs that were asked for and were not there: what became of each, the latest first.
// Plain value; one thread. Times are of the loop's clock.
#pragma once

#include <list>
#include <set>
#include <string>
#include <unordered_map>

#include "compiler_core/base/digest.h"
#include "compiler_core/program/target.h"

namespace kiln {

struct Miss {
  Digest program, graph;
  Target target;
  Mode mode = Mode::kDefault;
  int64_t times = 1;      // requests, also those that joined
  int64_t at_ms = 0;      // when the last of them was answered
  double took_s = 0;      // from its first request to that answer
  std::string outcome{};  // "tuned", "not_found", ...: as TaskTimes::outcomes
  std::string reason{};   // why it was not tuned
  size_t kernels = 0, cached = 0, candidates = 0;
  double winners_us = 0;  // TaskLog's
  std::set<std::string> users{};
};

class MissLog {
 public:
  static constexpr size_t kMost = 1'000, kMostUsers = 8;

  // One more; a program that was missed before has its times added up.
  void add(Miss miss);
  const std::list<Miss>& latest() const { return misses_; }
  const Miss* find(const Digest& program) const;  // null: not lately

 private:
  std::list<Miss> misses_;
  std::unordered_map<Digest, std::list<Miss>::iterator> places_;
};

}  // namespace kiln
