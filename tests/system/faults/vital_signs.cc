#include "tests/system/faults/vital_signs.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

namespace kiln::testing {

void VitalSigns::sample(double now_s, pid_t pid) {
  if (pid <= 0) return;
  const std::string process = "/proc/" + std::to_string(pid);
  double pages = 0, resident = 0;
  if (!(std::ifstream(process + "/statm") >> pages >> resident) || resident == 0) return;
  std::error_code error;
  const std::filesystem::directory_iterator open(process + "/fd", error);
  if (error) return;
  if (lives_.empty() || lives_.back().pid != pid) lives_.push_back({pid, {}});
  const double kib = static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1024;
  lives_.back().samples.push_back(
      {now_s, resident * kib, static_cast<int>(std::distance(begin(open), end(open)))});
}

nlohmann::json VitalSigns::report() const {
  nlohmann::json report;
  double longest_s = 0, rss_max = 0, covariance = 0, variance = 0;
  int fds_min = 1 << 30, fds_max = 0;
  const Life* longest = nullptr;
  for (const Life& life : lives_) {
    const double length_s = life.samples.back().at_s - life.samples.front().at_s;
    if (longest == nullptr || length_s > longest_s) longest = &life;
    longest_s = std::max(longest_s, length_s);
    double mean_s = 0, mean_kib = 0;
    const auto from = static_cast<std::ptrdiff_t>(life.samples.size() / 4);
    const auto count = static_cast<double>(life.samples.size()) - static_cast<double>(from);
    for (auto at = life.samples.begin() + from; at != life.samples.end(); ++at) {
      mean_s += at->at_s / count;
      mean_kib += at->rss_kib / count;
      fds_min = std::min(fds_min, at->descriptors);
      fds_max = std::max(fds_max, at->descriptors);
      rss_max = std::max(rss_max, at->rss_kib);
    }
    for (auto at = life.samples.begin() + from; at != life.samples.end(); ++at) {
      covariance += (at->at_s - mean_s) * (at->rss_kib - mean_kib);
      variance += (at->at_s - mean_s) * (at->at_s - mean_s);
    }
  }
  report["lives"] = lives_.size();
  if (longest == nullptr) return report;
  report["longest_life_s"] = longest_s;
  report["rss_kib_of_longest"] = {longest->samples.front().rss_kib,
                                  longest->samples.back().rss_kib};
  report["rss_kib_max"] = rss_max;
  report["rss_slope_kib_per_min"] = variance > 0 ? 60 * covariance / variance : 0;
  report["fds_min"] = fds_min;
  report["fds_max"] = fds_max;
  report["fds_last"] = longest->samples.back().descriptors;
  return report;
}

}  // namespace kiln::testing
