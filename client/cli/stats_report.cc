#include "client/cli/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "schema/messages.h"

namespace kiln::cli {
namespace {

// A second's worth of a counter; 0 when the coordinator was started anew in between.
double rate(int64_t Stats::*counter, const Stats& now, const Stats& before) {
  const double seconds = now.uptime_s - before.uptime_s;
  const int64_t more = now.*counter - before.*counter;
  return seconds <= 0 || more < 0 ? 0 : static_cast<double>(more) / seconds;
}

// "1234 hits (56.0/s)"
std::string count(int64_t Stats::*counter, const char* what, const Stats& now,
                  const Stats* before) {
  std::string text = fmt::format("{} {}", now.*counter, what);
  if (before != nullptr) text += fmt::format(" ({:.1f}/s)", rate(counter, now, *before));
  return text;
}

std::string_view state_of(const WorkerStats& worker) {
  return worker.state.empty() ? "serving" : std::string_view(worker.state);
}

std::string nature_of(const WorkerStats& w) {
  if (w.role == "build") return fmt::format("only builds, for {}; {}", w.builds_for, w.toolkit);
  return fmt::format("{} ({}, {} {}), {}", w.target.to_string(), w.target.device_model,
                     w.target.units, w.target.backend == Backend::kCuda ? "SMs" : "cores",
                     w.toolkit);
}

std::string worker_rows(const std::vector<WorkerStats>& workers) {
  if (workers.empty()) return "  no workers\n";
  size_t name_width = 6;
  for (const WorkerStats& w : workers) name_width = std::max(name_width, w.name.size());
  std::string text =
      fmt::format("  {:<{}}  {:<11}  {:>6} {:>9} {:>9} {:>7}  {}\n", "worker", name_width, "state",
                  "leases", "compiled", "measured", "idle s", "what it is");
  for (const WorkerStats& w : workers) {
    text += fmt::format("  {:<{}}  {:<11}  {:>6} {:>9} {:>9} {:>7.1f}  {}\n", w.name, name_width,
                        state_of(w), w.leases, w.compiled, w.measured, w.idle_s, nature_of(w));
    if (!w.reason.empty()) text += fmt::format("  {:<{}}  because {}\n", "", name_width, w.reason);
    if (!w.waiting.empty())
      text += fmt::format("  {:<{}}  waits for {}\n", "", name_width, w.waiting);
    if (!w.trust.empty())
      text += fmt::format("  {:<{}}  its key's trust is {}\n", "", name_width, w.trust);
    if (!w.sandbox.empty())
      text += fmt::format("  {:<{}}  sandbox {}\n", "", name_width, w.sandbox);
  }
  return text;
}

}  // namespace

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
                       {"idle_s", w.idle_s},
                       {"state", state_of(w)},
                       {"reason", w.reason},
                       {"sentinel_us", w.sentinel_us},
                       {"sandbox", w.sandbox},
                       {"waiting", w.waiting},
                       {"trust", w.trust},
                       {"role", w.role.empty() ? "measure" : w.role},
                       {"builds_for", w.builds_for},
                       {"built", w.built}});
  nlohmann::ordered_json refused = nlohmann::ordered_json::array();
  for (const RefusedStats& user : s.refused)
    refused.push_back({{"user", user.user}, {"count", user.count}});
  nlohmann::ordered_json artifacts = nlohmann::ordered_json::array();
  for (const ArtifactStats& kind : s.artifacts)
    artifacts.push_back({{"kind", kind.kind},
                         {"entries", kind.entries},
                         {"bytes", kind.bytes},
                         {"hits", kind.hits},
                         {"misses", kind.misses},
                         {"joined", kind.joined},
                         {"stored", kind.stored},
                         {"evicted", kind.evicted},
                         {"damaged", kind.damaged}});
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
          {"uptime_s", s.uptime_s},
          {"requests_open", s.requests_open},
          {"candidates_queued", s.candidates_queued},
          {"overloaded", s.overloaded},
          {"hedged", s.hedged},
          {"set_aside", s.set_aside},
          {"evicted", s.evicted},
          {"connections", s.connections},
          {"detached_queued", s.detached_queued},
          {"detached_running", s.detached_running},
          {"detached_failed", s.detached_failed},
          {"programs_stale", s.programs_stale},
          {"answered_early", s.answered_early},
          {"withdrawn", s.withdrawn},
          {"answered_tier0", s.answered_tier0},
          {"spooled", s.spooled},
          {"spooled_bytes", s.spooled_bytes},
          {"blob_links", s.blob_links},
          {"refused", std::move(refused)},
          {"artifacts", std::move(artifacts)}};
}

std::string stats_text(const std::string& endpoint, const Stats& s, const Stats* before) {
  const auto n = [&](int64_t Stats::*counter, const char* what) {
    return count(counter, what, s, before);
  };
  std::string text = fmt::format(
      "{}, up {:.0f} s, {} connections\n"
      "  look-ups    {}, {}, {}, {}\n"
      "  open        {} flights, {} requests, {} candidates queued\n"
      "  candidates  {}, {}, {} retried, {} set aside; {} batches hedged\n"
      "  stored      {} entries, {:.1f} MiB of binaries, {} evicted\n"
      "  trouble     {} corrupt blobs, {} malformed messages, {} failed stores\n",
      endpoint, s.uptime_s, s.connections, n(&Stats::hits, "hits"), n(&Stats::misses, "misses"),
      n(&Stats::joined, "joined"), n(&Stats::overloaded, "overloaded"), s.flights_open,
      s.requests_open, s.candidates_queued, n(&Stats::candidates_compiled, "compiled"),
      n(&Stats::candidates_measured, "measured"), s.retries, s.set_aside, s.hedged, s.entries,
      static_cast<double>(s.bytes) / (1 << 20), s.evicted, s.corrupt_blobs, s.malformed_messages,
      s.store_failures);
  if (s.spooled > 0)
    text += fmt::format(
        "  spooled     {} programs and kernels, {:.1f} MiB, on its disk alone until the store is "
        "back\n",
        s.spooled, static_cast<double>(s.spooled_bytes) / (1 << 20));
  if (s.blob_links > 0)
    text += fmt::format("  links       {} binaries were answered with a link\n", s.blob_links);
  if (s.detached_queued + s.detached_running + s.detached_failed > 0)
    text += fmt::format("  detached    {} queued, {} running, {} failed\n", s.detached_queued,
                        s.detached_running, s.detached_failed);
  if (s.answered_tier0 > 0)
    text +=
        fmt::format("  tier 0      {} answered with the default program, to be tuned behind it\n",
                    s.answered_tier0);
  if (s.answered_early > 0)
    text += fmt::format("  early       {} answered before they were verified, {} withdrawn\n",
                        s.answered_early, s.withdrawn);
  if (s.programs_stale > 0)
    text += fmt::format(
        "  stale       {} programs of older templates: served, and tuned again when asked for\n",
        s.programs_stale);
  for (const ArtifactStats& kind : s.artifacts)
    text += fmt::format(
        "  artifacts   {}: {} kept, {:.1f} MiB; {} hits, {} misses, {} joined, {} stored, {} "
        "evicted{}\n",
        kind.kind, kind.entries, static_cast<double>(kind.bytes) / (1 << 20), kind.hits,
        kind.misses, kind.joined, kind.stored, kind.evicted,
        kind.damaged > 0 ? fmt::format(", {} damaged", kind.damaged) : "");
  for (const RefusedStats& user : s.refused)
    text += fmt::format("  refused     {} {} times\n", user.user, user.count);
  return text + worker_rows(s.workers);
}

std::string stats_line(const Stats& s, const Stats& before) {
  const auto serving =
      std::ranges::count_if(s.workers, [](const auto& w) { return state_of(w) == "serving"; });
  return fmt::format(
      "up_s={:.0f} hits_per_s={:.1f} misses_per_s={:.1f} compiled_per_s={:.1f} "
      "measured_per_s={:.1f} flights_open={} requests_open={} candidates_queued={} workers={} "
      "serving={} connections={}\n",
      s.uptime_s, rate(&Stats::hits, s, before), rate(&Stats::misses, s, before),
      rate(&Stats::candidates_compiled, s, before), rate(&Stats::candidates_measured, s, before),
      s.flights_open, s.requests_open, s.candidates_queued, s.workers.size(), serving,
      s.connections);
}

}  // namespace kiln::cli
