// Refusals: how often each user was refused, and why: it may not (permission_denied), or too much was
// waiting (overloaded). One log line a minute for each user that was, not one a refusal. Users are
// owners of keys, so they are as many as there are keys. Plain value; one thread.
//
//   refused user=ci overloaded=12 permission_denied=3
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler_core/base/result.h"
#include "coordinator/status/log_line.h"
#include "schema/messages.h"

namespace kiln {

class Refusals {
 public:
  static constexpr int64_t kLineEveryMs = 60'000;

  // Counts nothing for other codes. `user`: empty without keys.
  void count(const std::string& user, Code code);
  // The lines that are due: none within a minute of the last ones.
  std::vector<LogLine> take_lines(int64_t now_ms);
  // Counts for everybody, or for `user` alone; the most refused first, a hundred at most.
  std::vector<RefusedStats> stats() const;
  std::vector<RefusedStats> stats_of(const std::string& user) const;
  // Since the start, by the code's name; those that never came too.
  std::map<std::string, int64_t> by_reason() const;

 private:
  struct Counts {
    int64_t overloaded = 0, denied = 0;
    int64_t all() const { return overloaded + denied; }
  };
  std::map<std::string, Counts> users_, since_line_;
  Counts all_;
  int64_t next_line_ms_ = 0;
};

}  // namespace kiln
