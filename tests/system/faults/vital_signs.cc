#include "tests/system/faults/vital_signs.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <span>
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

// Least squares: sums over lives, each against its own mean.
struct VitalSigns::Slope {
  double covariance = 0, variance = 0;
  int lives = 0;

  void add(std::span<const Sample> samples) {
    const auto count = static_cast<double>(samples.size());
    double mean_s = 0, mean_kib = 0;
    for (const Sample& at : samples) {
      mean_s += at.at_s / count;
      mean_kib += at.rss_kib / count;
    }
    for (const Sample& at : samples) {
      covariance += (at.at_s - mean_s) * (at.rss_kib - mean_kib);
      variance += (at.at_s - mean_s) * (at.at_s - mean_s);
    }
    ++lives;
  }
};

nlohmann::json VitalSigns::report() const {
  const auto length_s = [](const Life& life) {
    return life.samples.back().at_s - life.samples.front().at_s;
  };
  const auto settled = [](const Life& life) {
    return std::ranges::find_if(life.samples, [&](const Sample& sample) {
      return sample.at_s >= life.samples.front().at_s + kSettlesS;
    });
  };
  nlohmann::json report = {{"lives", lives_.size()}};
  if (lives_.empty()) return report;
  Slope slope;
  double rss_max = 0;
  int fds_min = 1 << 30, fds_max = 0;
  for (const Life& life : lives_) {
    if (length_s(life) >= 2 * kSettlesS) slope.add({settled(life), life.samples.end()});
    for (const Sample& sample : life.samples) {
      fds_min = std::min(fds_min, sample.descriptors);
      fds_max = std::max(fds_max, sample.descriptors);
      rss_max = std::max(rss_max, sample.rss_kib);
    }
  }
  const Life& longest = *std::ranges::max_element(lives_, {}, length_s);
  const auto after_a_minute = settled(longest);
  report["longest_life_s"] = length_s(longest);
  report["rss_kib"] = {
      longest.samples.front().rss_kib,
      (after_a_minute == longest.samples.end() ? longest.samples.back() : *after_a_minute).rss_kib,
      longest.samples.back().rss_kib};
  report["rss_kib_max"] = rss_max;
  report["long_lives"] = slope.lives;
  report["rss_slope_kib_per_min"] = slope.variance > 0 ? 60 * slope.covariance / slope.variance : 0;
  report["fds"] = {fds_min, fds_max};
  return report;
}

}  // namespace kiln::testing
