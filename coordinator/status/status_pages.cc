#include "coordinator/status/status_pages.h"

#include <fmt/format.h>

#include <algorithm>

namespace kiln {
namespace {

using Phase = ServiceStatus::Phase;
using TimePoint = ServiceStatus::Clock::time_point;

constexpr double kHealthyStallS = 10;  // a disk that hangs for less is not cured by a restart
constexpr double kReadyStallS = 2;     // what a client waits before it goes on without us
constexpr auto kStoreFailureWindow = std::chrono::minutes(1);

HttpAnswer plain(unsigned status, std::string body) {
  HttpAnswer answer;
  answer.status = status;
  answer.body = std::move(body);
  return answer;
}

std::string stalled(double seconds) {
  return fmt::format("the loop has not turned for {:.1f} s\n", seconds);
}

HttpAnswer health(const ServiceStatus& status, TimePoint now) {
  if (status.phase() == Phase::kStarting) return plain(200, "starting\n");
  const double stalled_s = status.stalled_s(now);
  return stalled_s > kHealthyStallS ? plain(503, stalled(stalled_s)) : plain(200, "ok\n");
}

HttpAnswer readiness(const ServiceStatus& status, TimePoint now) {
  if (status.phase() == Phase::kStarting) return plain(503, "starting\n");
  if (status.phase() == Phase::kStopping) return plain(503, "stopping\n");
  if (const double s = status.stalled_s(now); s > kReadyStallS) return plain(503, stalled(s));
  std::string body = "ready\n";
  if (const std::string& away = status.latest()->store_away; !away.empty()) {
    body += fmt::format(
        "degraded: {}: what is in memory is answered, the rest is unavailable until it is back\n",
        away);
  }
  if (const auto latest = status.latest(); latest->stats.spooled > 0) {
    body += fmt::format(
        "degraded: {} programs and kernels ({:.1f} MiB) wait on this machine's disk for the "
        "store\n",
        latest->stats.spooled, static_cast<double>(latest->stats.spooled_bytes) / (1 << 20));
  }
  if (status.phase() == Phase::kFollowing)
    return plain(200, body + "follows: it answers what is stored, another coordinator leads\n");
  const bool serving = std::ranges::any_of(status.latest()->stats.workers, [](const auto& worker) {
    return worker.state.empty() || worker.state == "serving";
  });
  if (!serving) body += "degraded: no worker serves, so what is not in the cache fails\n";
  if (status.store_failed_within(now, kStoreFailureWindow)) {
    body +=
        "degraded: the disk took no write within the last minute, so new programs are answered "
        "but not kept\n";
  }
  return plain(200, std::move(body));
}

}  // namespace

bool is_status_path(std::string_view path) {
  return path == "/metrics" || path == "/healthz" || path == "/readyz";
}

HttpAnswer status_page(const ServiceStatus& status, TimePoint now, int64_t log_lines_dropped,
                       std::string_view path) {
  if (path == "/metrics") {
    HttpAnswer answer =
        plain(200, metrics_text(*status.latest(), process_use(), log_lines_dropped));
    answer.content_type = "text/plain; version=0.0.4; charset=utf-8";
    return answer;
  }
  if (path == "/healthz") return health(status, now);
  if (path == "/readyz") return readiness(status, now);
  return plain(404, "here are /metrics, /healthz and /readyz\n");
}

}  // namespace kiln
