// Pace: how long a candidate takes, by target and family: the median of the latest ones, from the
// moments at which workers handed their results over. So leases are sized by time, and it shows
// which are late. Plain value; one thread.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "coordinator/core/events.h"

namespace kiln {

class Pace {
 public:
  // `count` candidates took `ms` together. Nothing is learnt from 0 ms.
  void saw(const Target& target, Family family, int64_t ms, int count);
  // Of one candidate; nothing before the third was seen.
  std::optional<double> median_ms(const Target& target, Family family) const;

 private:
  struct Seen {
    std::vector<double> latest_ms;  // a ring, once it is full
    size_t next = 0;
    double median_ms = 0;
  };
  std::map<std::pair<std::string, Family>, Seen> seen_;
};

}  // namespace kiln
