#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler_core/page/values.h"
#include "coordinator/page/views.h"

namespace kiln::page {
namespace {

constexpr size_t kLately = 8;

int64_t count_workers(const Stats& stats, std::string_view state) {
  return std::ranges::count_if(stats.workers, [&](const WorkerStats& worker) {
    return (worker.state.empty() ? "serving" : worker.state) == state;
  });
}

std::string these(int64_t number, const char* one, const char* several) {
  return fmt::format("{} {}", number, number == 1 ? one : several);
}

// The troubles that an operator should look at, the worst first.
std::vector<Block> troubles(const Snapshot& now) {
  const Stats& s = now.status.stats;
  std::vector<Block> blocks;
  const auto say = [&](bool is_so, Tone tone, std::string text, const char* link) {
    if (is_so) blocks.emplace_back(Notice{tone, std::move(text), link});
  };
  const int64_t quarantined = count_workers(s, "quarantined");
  say(count_workers(s, "serving") == 0, Tone::kBad,
      "No worker serves: what is cached is answered, the rest is not.", "/workers");
  say(s.store_failures > 0, Tone::kBad,
      these(s.store_failures, "write", "writes") + " did not reach the disk since the start.",
      "/cache");
  say(now.status.read_failures > 0, Tone::kBad,
      these(now.status.read_failures, "look-up", "look-ups") + " could not be read from the index.",
      "/cache");
  say(!now.status.store_away.empty(), Tone::kBad,
      now.status.store_away + ": what is in memory is answered, the rest is unavailable.",
      "/cache");
  say(s.spooled > 0, Tone::kWarning,
      these(s.spooled, "program or kernel waits", "programs and kernels wait") +
          " on this machine's disk alone, for the store.",
      "/cache");
  say(s.corrupt_blobs > 0, Tone::kBad,
      these(s.corrupt_blobs, "binary", "binaries") + " changed on disk, and will be made again.",
      "/cache");
  say(quarantined > 0, Tone::kWarning,
      these(quarantined, "worker is", "workers are") + " in quarantine.",
      "/workers?filter=quarantined");
  say(s.detached_failed > 0, Tone::kWarning,
      these(s.detached_failed, "program", "programs") + " queued without a client failed.",
      "/tuning");
  say(now.status.detached_damaged > 0, Tone::kBad,
      these(now.status.detached_damaged, "queued program was", "queued programs were") +
          " lost: damaged rows.",
      "/tuning");
  say(s.overloaded > 0, Tone::kWarning,
      these(s.overloaded, "request was", "requests were") +
          " refused since the start: too much waited.",
      "/tuning");
  say(s.set_aside > 0, Tone::kWarning,
      these(s.set_aside, "candidate was", "candidates were") +
          " given up after failures that should have passed.",
      "/workers");
  say(s.malformed_messages > 0, Tone::kWarning,
      these(s.malformed_messages, "message", "messages") +
          " could not be read: another version, or a wrong key.",
      "/workers");
  if (blocks.empty()) blocks.emplace_back(Notice{Tone::kGood, "Nothing is wrong.", ""});
  return blocks;
}

// How often a counter went up a second, between each sample and the one before it.
std::vector<double> rates(const std::vector<Sample>& samples, int64_t Sample::*counter) {
  std::vector<double> values;
  for (size_t i = 1; i < samples.size(); ++i) {
    const double s = static_cast<double>(samples[i].at_ms - samples[i - 1].at_ms) / 1000;
    const auto more = static_cast<double>(samples[i].*counter - samples[i - 1].*counter);
    values.push_back(s > 0 ? more / s : std::numeric_limits<double>::quiet_NaN());
  }
  return values;
}

std::vector<double> values_of(const std::vector<Sample>& samples, int64_t Sample::*gauge) {
  std::vector<double> values;
  for (size_t i = 1; i < samples.size(); ++i)
    values.push_back(static_cast<double>(samples[i].*gauge));
  return values;
}

std::vector<int64_t> times_of(const std::vector<Sample>& samples) {
  std::vector<int64_t> times;
  for (size_t i = 1; i < samples.size(); ++i) times.push_back(samples[i].at_ms);
  return times;
}

Chart look_ups(const std::vector<Sample>& samples, std::string name, std::string heading) {
  return {std::move(name),
          std::move(heading),
          {{"hits", "hits", rates(samples, &Sample::hits)},
           {"joined", "joined work that went on", rates(samples, &Sample::joined)},
           {"misses", "misses", rates(samples, &Sample::misses)}},
          times_of(samples)};
}

Chart work(const std::vector<Sample>& samples) {
  return {"work",
          "Workers, last ten minutes",
          {{"workers", "connected", values_of(samples, &Sample::workers)},
           {"busy", "at work", values_of(samples, &Sample::busy_workers)},
           {"open", "programs in flight", values_of(samples, &Sample::open)}},
          times_of(samples)};
}

double per_second(const std::vector<Sample>& samples, int64_t Sample::*counter) {
  constexpr size_t kOver = 60;
  if (samples.size() < 2) return 0;
  const Sample& last = samples.back();
  const Sample& then = samples[samples.size() - 1 - std::min(kOver, samples.size() - 1)];
  const double s = static_cast<double>(last.at_ms - then.at_ms) / 1000;
  return s > 0 ? static_cast<double>(last.*counter - then.*counter) / s : 0;
}

std::string rate_note(double per_s) {
  return fmt::format("{:.{}f} a second in the last minute", per_s, per_s < 10 ? 1 : 0);
}

// The device time that each hit and join saved: the mean device time of a program that was tuned.
Tile saved(const Snapshot& now) {
  const auto tuned = now.status.tasks.outcomes.find("tuned");
  const auto programs =
      static_cast<double>(tuned == now.status.tasks.outcomes.end() ? 0 : tuned->second);
  const double spent_s = now.busy_cpu_s + now.busy_gpu_s;
  Tile tile{"device_saved_s", "Device time saved", {}};
  if (programs < 1 || spent_s <= 0) {
    tile.value = quiet("not known");
    tile.note = "no program was tuned since the start, so nobody knows what one costs";
    tile.value.data = {};
    return tile;
  }
  const double each_s = spent_s / programs;
  const auto spared = static_cast<double>(now.status.stats.hits + now.status.stats.joined);
  tile.value = seconds(each_s * spared);
  tile.note = fmt::format(
      "an estimate: hits and joins, each at the {} that a tuned program took; {} of it of GPUs",
      seconds(each_s).text, seconds(now.busy_gpu_s / programs * spared).text);
  return tile;
}

// The time that each hit saved its client: the time that a program took on the average that was not there.
Tile waiting_saved(const Snapshot& now) {
  Tile tile{"waiting_saved_s", "Waiting saved", {}};
  const Histogram& waits = now.status.tasks.total;
  if (waits.count() == 0) {
    tile.value = quiet("not known");
    tile.value.data = {};
    tile.note = "no program was asked for that was not there";
    return tile;
  }
  const double each_s = waits.sum_s() / static_cast<double>(waits.count());
  tile.value = seconds(each_s * static_cast<double>(now.status.stats.hits));
  tile.note = fmt::format("an estimate: hits, each at the {} that others waited for a program",
                          seconds(each_s).text);
  return tile;
}

Tiles tiles(const Snapshot& now) {
  const Stats& s = now.status.stats;
  const int64_t serving = count_workers(s, "serving");
  const int64_t busy = now.seconds.empty() ? 0 : now.seconds.back().busy_workers;
  Tiles tiles;
  auto& all = tiles.tiles;
  all.push_back({"hits", "Hits", linked(count(s.hits), "/cache"),
                 rate_note(per_second(now.seconds, &Sample::hits))});
  all.push_back(
      {"joined", "Joins", linked(count(s.joined), "/tuning"), "asked while another had it tuned"});
  all.push_back({"misses", "Misses", linked(count(s.misses), "/misses"),
                 rate_note(per_second(now.seconds, &Sample::misses))});
  all.push_back({"open", "In flight", linked(count(s.flights_open), "/tuning"),
                 fmt::format("{} candidates wait for a worker", s.candidates_queued)});
  all.push_back({"workers_serving", "Workers serving",
                 toned(linked(count(serving), "/workers?filter=serving"),
                       serving == 0 ? Tone::kBad : Tone::kPlain),
                 fmt::format("{} at work, {} connected", busy, s.workers.size())});
  all.push_back({"programs", "Programs kept", linked(count(now.totals.programs), "/cache"),
                 fmt::format("{} kernels, {} in binaries", now.totals.kernels,
                             bytes(now.totals.bytes).text)});
  all.push_back({"device_busy_s", "Device time spent",
                 linked(seconds(now.busy_cpu_s + now.busy_gpu_s), "/workers"),
                 fmt::format("CPUs {}, GPUs {}, since the start", seconds(now.busy_cpu_s).text,
                             seconds(now.busy_gpu_s).text)});
  all.push_back(saved(now));
  all.push_back(waiting_saved(now));
  all.push_back({"uptime_s", "Serving for", seconds(s.uptime_s),
                 these(s.connections, "connection", "connections")});
  return tiles;
}

}  // namespace

Document overview(const Snapshot& now) {
  Document page{"overview", "Overview"};
  page.blocks = troubles(now);
  page.blocks.emplace_back(tiles(now));
  Table running = open_programs(now);
  running.rows.resize(std::min(running.rows.size(), kLately));
  page.blocks.emplace_back(std::move(running));
  page.blocks.emplace_back(
      look_ups(now.seconds, "look_ups", "Look-ups a second, last ten minutes"));
  page.blocks.emplace_back(work(now.seconds));
  if (now.minutes.size() > 2)
    page.blocks.emplace_back(look_ups(now.minutes, "look_ups_day", "Look-ups a second, last day"));
  Table lately = missed_programs(now);
  lately.name = "lately_missed";
  lately.heading = "Lately missed";
  lately.rows.resize(std::min(lately.rows.size(), kLately));
  page.blocks.emplace_back(std::move(lately));
  return page;
}

}  // namespace kiln::page
