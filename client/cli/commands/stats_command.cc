#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "client/cli/service.h"

namespace kiln::cli {
namespace {

// Once, or every second until it is interrupted: on a terminal the page is drawn over the last one.
struct Watch {
  bool on = false, redraw = false;
};

Watch watch_of(const Options& options) {
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  const bool on = options.watch || (terminal && !options.json && !options.once);
  return {on, on && terminal && !options.json};
}

void print(const Options& options, const Watch& watch, const Stats& stats, const Stats* before) {
  constexpr const char* kHomeAndClear = "\x1b[H\x1b[2J";
  if (options.json) {
    std::printf("%s\n", stats_json(stats).dump().c_str());
  } else if (watch.redraw) {
    std::fputs((kHomeAndClear + stats_text(options.coordinator, stats, before)).c_str(), stdout);
  } else if (watch.on) {
    std::fputs(stats_line(stats, before == nullptr ? stats : *before).c_str(), stdout);
  } else {
    std::fputs(stats_text(options.coordinator, stats).c_str(), stdout);
  }
  std::fflush(stdout);
}

}  // namespace

int stats_command(const Options& options) {
  const auto service = service_of(options);
  if (!service) {
    print_error(options, "", service.error());
    return exit_code_of(service.error());
  }
  const Watch watch = watch_of(options);
  std::optional<Stats> before;
  for (;;) {
    const auto due = Remote::Clock::now() + std::chrono::seconds(1);
    auto stats = (*service)->stats(Remote::Clock::now() + std::chrono::seconds(5));
    if (!stats) {
      print_error(options, "", stats.error());
      return exit_code_of(stats.error());
    }
    print(options, watch, *stats, before ? &*before : nullptr);
    if (!watch.on) return kDone;
    if (std::ferror(stdout) != 0) return kDone;  // nobody reads any more
    before = *std::move(stats);
    std::this_thread::sleep_until(due);
  }
}

}  // namespace kiln::cli
