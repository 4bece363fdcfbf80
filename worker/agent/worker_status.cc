#include "worker/agent/worker_status.h"

#include <fmt/format.h>

#include <algorithm>

#include "schema/metrics/metrics_text.h"

namespace kiln {
namespace {

// It goes round every second while it is connected; a connection that is tried, and the pause
// after it, take some four.
constexpr double kHealthyStallS = 30;

HttpAnswer plain(unsigned status, std::string body) {
  return {status, "text/plain; charset=utf-8", std::move(body)};
}

HttpAnswer health(const WorkerStatus& status, WorkerStatus::Clock::time_point now) {
  const double stalled_s = std::chrono::duration<double>(now - status.turned).count();
  if (status.turned == WorkerStatus::Clock::time_point{}) return plain(200, "starting\n");
  if (stalled_s < kHealthyStallS) return plain(200, "ok\n");
  return plain(503, fmt::format("the agent has not gone round for {:.1f} s\n", stalled_s));
}

HttpAnswer readiness(const WorkerStatus& status) {
  if (status.draining) return plain(503, "draining\n");
  if (status.connected) return plain(200, "ready\n");
  return plain(503, fmt::format("not connected to {}{}{}\n", status.coordinator,
                                status.trouble.empty() ? "" : ": ", status.trouble));
}

void candidates(MetricsText& out, const CandidateTally& tally) {
  out.family("kiln_worker_candidates_total", "counter", "Candidates finished, by verdict.");
  for (size_t i = 0; i < kVerdicts.size(); ++i)
    out.sample(static_cast<double>(tally.by_verdict[i]), {{"verdict", to_string(kVerdicts[i])}});
  out.counter("kiln_worker_candidates_compiled_total", "Candidates that a compiler ran for.",
              tally.compiled);
  out.family("kiln_worker_stage_duration_seconds", "histogram",
             "What each candidate took: its compiler, the check of its results, its timing.");
  out.histogram(tally.compile, {{"stage", "compile"}});
  out.histogram(tally.verify, {{"stage", "verify"}});
  out.histogram(tally.measure, {{"stage", "measure"}});
}

std::string metrics(const WorkerStatus& status) {
  MetricsText out;
  out.gauge("kiln_worker_connected", "1 while connected to the coordinator.",
            status.connected ? 1 : 0);
  out.counter("kiln_worker_connections_total", "Connections to the coordinator.",
              status.connections);
  out.gauge("kiln_worker_draining", "1 once it takes no new leases.", status.draining ? 1 : 0);
  out.gauge("kiln_worker_slots", "Leases that it wants at once.", status.self.slots);
  out.gauge("kiln_worker_leases", "Batches at work.", static_cast<double>(status.leases));
  out.gauge("kiln_worker_results_held", "Results that are not yet known to be stored.",
            static_cast<double>(status.held));
  candidates(out, status.candidates);
  out.gauge("kiln_worker_sentinel_seconds",
            "The calibration kernel's last median; 0: not measured.",
            status.self.sentinel_us / 1e6);
  out.counter("kiln_worker_device_errors_total", "Errors of the device.",
              status.self.device_errors);
  trace_families(out, status.spans);
  out.family("kiln_worker_build_info", "gauge", "Always 1; its labels say what runs where.");
  out.sample(1, {{"version", "0.1.0"},
                 {"protocol", std::to_string(kProtocolVersion)},
                 {"worker", status.self.worker},
                 {"target", status.self.target.to_string()},
                 {"device", status.self.target.device_model},
                 {"toolkit", status.self.toolkit}});
  process_families(out, process_use());
  return out.take();
}

}  // namespace

void CandidateTally::count(const CandidateResult& result) {
  const auto verdict = std::ranges::find(kVerdicts, result.verdict);
  if (verdict != kVerdicts.end()) ++by_verdict[static_cast<size_t>(verdict - kVerdicts.begin())];
  if (result.compiled) ++compiled;
  const auto observe = [](Histogram& histogram, double ms) {
    if (ms > 0) histogram.observe(ms / 1000);
  };
  if (result.compiled) observe(compile, result.compile_ms);
  observe(verify, result.verify_ms);
  observe(measure, result.measure_ms);
}

HttpAnswer worker_page(const WorkerStatus& status, WorkerStatus::Clock::time_point now,
                       std::string_view path) {
  if (path == "/metrics") return {200, "text/plain; version=0.0.4; charset=utf-8", metrics(status)};
  if (path == "/healthz") return health(status, now);
  if (path == "/readyz") return readiness(status);
  return plain(404, "here are /metrics, /healthz and /readyz\n");
}

}  // namespace kiln
