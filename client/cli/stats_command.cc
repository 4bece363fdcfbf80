#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "client/remote.h"

namespace kiln::cli {
namespace {

nlohmann::ordered_json stats_json(const Stats& s) {
  nlohmann::ordered_json workers = nlohmann::ordered_json::array();
  for (const WorkerStats& w : s.workers)
    workers.push_back({{"name", w.name},
                       {"target", w.target.to_string()},
                       {"device_model", w.target.device_model},
                       {"units", w.target.units},
                       {"toolkit", w.toolkit},
                       {"leases", w.leases},
                       {"compiled", w.compiled},
                       {"measured", w.measured},
                       {"idle_s", w.idle_s}});
  return {{"hits", s.hits},
          {"misses", s.misses},
          {"joined", s.joined},
          {"candidates_compiled", s.candidates_compiled},
          {"candidates_measured", s.candidates_measured},
          {"flights_open", s.flights_open},
          {"retries", s.retries},
          {"workers", std::move(workers)},
          {"entries", s.entries},
          {"bytes", s.bytes},
          {"corrupt_blobs", s.corrupt_blobs},
          {"malformed_messages", s.malformed_messages},
          {"store_failures", s.store_failures},
          {"uptime_s", s.uptime_s}};
}

std::string stats_text(const std::string& endpoint, const Stats& s) {
  std::string text = fmt::format(
      "{}, up {:.0f} s\n"
      "  look-ups    {} hits, {} misses, {} joined; {} flights open\n"
      "  candidates  {} compiled, {} measured, {} retried\n"
      "  stored      {} entries, {:.1f} MiB of binaries\n"
      "  trouble     {} corrupt blobs, {} malformed messages, {} failed stores\n",
      endpoint, s.uptime_s, s.hits, s.misses, s.joined, s.flights_open, s.candidates_compiled,
      s.candidates_measured, s.retries, s.entries, static_cast<double>(s.bytes) / (1 << 20),
      s.corrupt_blobs, s.malformed_messages, s.store_failures);
  if (s.workers.empty()) text += "  no workers\n";
  for (const WorkerStats& w : s.workers)
    text += fmt::format("  worker {}  {} ({}, {} {})  {}  {} leases, {} compiled, {} measured\n",
                        w.name, w.target.to_string(), w.target.device_model, w.target.units,
                        w.target.backend == Backend::kCuda ? "SMs" : "cores", w.toolkit, w.leases,
                        w.compiled, w.measured);
  return text;
}

}  // namespace

int stats_command(const Options& options) {
  if (options.coordinator.empty()) {
    print_error("", {Code::kInvalidArgument,
                     "which service? name it with --coordinator or KILN_COORDINATOR", 0});
    return kBadInput;
  }
  Remote remote(options.coordinator, std::chrono::milliseconds(2000));
  remote.use_key(options.key);
  const auto stats = remote.stats(Remote::Clock::now() + std::chrono::seconds(5));
  if (!stats) {
    print_error("", stats.error());
    return exit_code_of(stats.error());
  }
  if (options.json)
    std::printf("%s\n", stats_json(*stats).dump().c_str());
  else
    std::fputs(stats_text(options.coordinator, *stats).c_str(), stdout);
  return kDone;
}

}  // namespace kiln::cli
