#include "client/cli/explain/explanation.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace kiln::cli {
namespace {

constexpr size_t kCopiedBytes = size_t{96} << 20;  // more than a cache holds
constexpr int kRounds = 4;

double clock_ghz() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("cpu MHz")) return std::stod(line.substr(line.find(':') + 1)) / 1000;
  return 0;
}

// Bytes read and written by `threads` copies side by side, the fastest round.
double copy_gb_per_s(int threads) {
  const size_t each = kCopiedBytes / static_cast<size_t>(threads);
  std::vector<std::unique_ptr<char[]>> from, to;
  for (int i = 0; i < threads; ++i) {
    from.push_back(std::make_unique<char[]>(each));
    to.push_back(std::make_unique<char[]>(each));
  }
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto started = std::chrono::steady_clock::now();
    std::vector<std::thread> workers;
    for (size_t i = 0; i < from.size(); ++i)
      workers.emplace_back([&, i] { std::memcpy(to[i].get(), from[i].get(), each); });
    for (std::thread& worker : workers) worker.join();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - started;
    best = std::max(best, 2e-9 * static_cast<double>(each * from.size()) / took.count());
  }
  return best;
}

}  // namespace

DevicePeak host_peak(const Target& target) {
  const Target here = host_cpu_target();
  const bool ours = target.device_model == here.device_model && target.units == here.units;
  return cpu_peak(target, clock_ghz(), ours ? copy_gb_per_s(std::max(target.units, 1)) : 0);
}

}  // namespace kiln::cli
