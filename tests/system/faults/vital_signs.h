// VitalSigns: memory and descriptors of a process that is replaced now and then, over its lives.
// The slope is one for all lives of two minutes and more together, each against its own mean and
// without its first minute: caches fill then. One thread.
#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace kiln::testing {

class VitalSigns {
 public:
  void sample(double now_s, pid_t pid);  // nothing when it does not live
  // {"lives", "longest_life_s", "rss_kib": [at the start of the longest, after a minute, at its
  // end], "rss_kib_max", "long_lives", "rss_slope_kib_per_min" of those, "fds": [least, most]}
  nlohmann::json report() const;

 private:
  struct Sample {
    double at_s;
    double rss_kib;
    int descriptors;
  };
  struct Slope;
  static constexpr double kSettlesS = 60;
  struct Life {
    pid_t pid = 0;
    std::vector<Sample> samples;
  };
  std::vector<Life> lives_;
};

}  // namespace kiln::testing
