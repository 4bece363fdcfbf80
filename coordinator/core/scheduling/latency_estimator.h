// LatencyEstimator: how long a candidate takes on a target, by family: the median of the latest
// ones. It sizes leases by time and shows which are late. Plain value; one thread.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/core/events.h"

namespace kiln {

class LatencyEstimator {
 public:
  // `count` candidates took `ms` together. 0 ms is ignored.
  void saw(const Target& target, Family family, double ms, int count);
  // The median for one candidate; nothing before the third one.
  std::optional<double> median_ms(const Target& target, Family family) const;

 private:
  struct Seen {
    std::vector<double> latest_ms;  // a ring, once it is full
    size_t next = 0;
    double median_ms = 0;
  };
  std::map<std::tuple<Backend, std::string, Family>, Seen, std::less<>> seen_;
};

}  // namespace kiln
