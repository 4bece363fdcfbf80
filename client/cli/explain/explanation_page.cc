// An Explanation as a page: the same blocks in the same look as the coordinator's page.
#include <fmt/format.h>

#include <algorithm>

#include "client/cli/explain/explanation.h"
#include "compiler_core/base/file.h"
#include "compiler_core/command_line/command_line.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/page/blocks.h"
#include "compiler_core/page/values.h"

namespace kiln::cli {
namespace {

using page::Tone;
using page::Value;

const ExplainedKernel& kernel_of(const Explanation& all, const ExplainedLaunch& launch) {
  return all.kernels[static_cast<size_t>(launch.kernel)];
}

Value lines(const std::vector<std::string>& words) {
  return page::text(fmt::format("{}", fmt::join(words, "\n")));
}

std::string kernel_anchor(int kernel) {
  return fmt::format("kernel-{}", kernel);
}
Value kernel_link(const Explanation& all, int kernel) {
  const Digest& digest = all.kernels[static_cast<size_t>(kernel)].workload.digest;
  return page::linked(page::code(digest.short_hex()), "#" + kernel_anchor(kernel) + "-heading");
}
Value launch_links(const std::vector<int>& launches, const char* none) {
  if (launches.empty()) return page::quiet(none);
  constexpr size_t kNamed = 12;
  const size_t named = std::min(launches.size(), kNamed);
  std::string text = fmt::format(
      "{}", fmt::join(launches.begin(), launches.begin() + static_cast<ptrdiff_t>(named), ", "));
  if (launches.size() > named) text += fmt::format(" and {} more", launches.size() - named);
  return page::text(text);
}

// The bound is memory's: operands that stay in a CPU's caches beat it, and have no share of it.
Value bound_share(double floor_us, double time_us) {
  if (floor_us <= 0 || time_us <= 0) return page::quiet("-");
  return time_us < floor_us ? page::quiet("in caches") : page::share_of(floor_us, time_us);
}

Value flops_value(int64_t flops) {
  constexpr const char* kUnits[] = {"flop", "kflop", "Mflop", "Gflop", "Tflop"};
  auto number = static_cast<double>(flops);
  size_t unit = 0;
  for (; number >= 1000 && unit + 1 < std::size(kUnits); ++unit) number /= 1000;
  return {fmt::format("{:.4g} {}", number, kUnits[unit]), flops};
}

page::Tiles tiles_of(const Explanation& all) {
  double floor_us = 0, time_us = 0;
  int64_t bytes = 0, flops = 0, timed = 0;
  for (const ExplainedLaunch& launch : all.launches) {
    floor_us += launch.floor_us;
    bytes += launch.cost.bytes;
    flops += launch.cost.flops;
    time_us += kernel_of(all, launch).time_us;
    timed += kernel_of(all, launch).time_us > 0;
  }
  const auto launches = std::ssize(all.launches);
  page::Tiles tiles;
  tiles.tiles = {
      {"launches", "Launches", page::linked(page::count(launches), "#launches-heading"),
       fmt::format("of {} different kernels", all.kernels.size())},
      {"floor_us", "Roofline bound", page::microseconds(floor_us), "the least that they can take"},
      {"time_us", "Measured", page::microseconds(time_us),
       timed == 0          ? "nobody has timed its kernels yet"
       : timed == launches ? "when each kernel was tuned"
                           : fmt::format("{} of the launches", timed)},
      {"bytes", "Bytes moved", page::bytes(bytes), "by all launches"},
      {"flops", "Arithmetic", flops_value(flops), ""},
      {"arena_bytes", "Memory for temporaries",
       page::linked(page::bytes(all.arena_bytes), "#buffers-heading"),
       fmt::format("{} one by one, {} alive at once", page::bytes(all.temporary_bytes).text,
                   page::bytes(all.live_bytes).text)}};
  if (timed == launches && time_us > floor_us && floor_us > 0)
    tiles.tiles.insert(tiles.tiles.begin() + 3,
                       {"share", "Of the bound", page::share_of(floor_us, time_us), ""});
  return tiles;
}

page::Facts facts_of(const std::string& file, const Explanation& all) {
  page::Facts facts{"What it is"};
  std::vector<std::string> ops, sizes;
  for (const auto& [op, count] : all.summary.ops) ops.push_back(fmt::format("{} {}", count, op));
  for (size_t i = 0; i < all.symbols.size(); ++i) sizes.push_back(symbol_text(all, i));
  const auto inputs = std::ranges::count(all.buffers, Buffer::Kind::kInput, &ExplainedBuffer::kind);
  const auto outputs =
      std::ranges::count(all.buffers, Buffer::Kind::kOutput, &ExplainedBuffer::kind);
  facts.facts = {
      {"file", "File", page::code(file)},
      {"graph", "Graph digest", page::code(all.graph.hex())},
      {"target", "Made for",
       page::text(all.target.to_string() +
                  (all.target.device_model.empty() ? "" : ", " + all.target.device_model))},
      {"mode", "Mode", page::text(to_string(all.mode))},
      {"cache", "In the cache", page::text(all.cache)},
      {"nodes", "Graph",
       page::text(
           fmt::format("{} nodes as read, {} normalised; inputs and parameters: {}, outputs: {}",
                       all.summary.read_nodes, all.summary.nodes, inputs, outputs))},
      {"ops", "Its operations", page::text(fmt::format("{}", fmt::join(ops, ", ")))},
      {"bound", "Bounds by", page::text(all.peak.source)}};
  if (!sizes.empty()) facts.facts.push_back({"sizes", "Sizes known at the call", lines(sizes)});
  if (!all.guards.empty()) facts.facts.push_back({"guards", "Guards", lines(all.guards)});
  return facts;
}

page::Table cuts_of(const Explanation& all) {
  page::Table table{
      "cuts",
      "Ways to divide the graph that were considered",
      {{"name", "Way"}, {"launches", "Launches", true}, {"us", "Time", true}, {"taken", "Taken"}}};
  for (size_t i = 0; i < all.alternatives.size(); ++i) {
    const ExplainedAlternative& one = all.alternatives[i];
    const bool taken = i == static_cast<size_t>(all.alternative);
    table.rows.push_back(
        {page::text(one.name), page::count(one.launches), page::microseconds(one.time_us),
         taken ? page::toned(page::text("yes: " + all.alternative_reason), Tone::kGood)
               : page::quiet("no")});
  }
  return table;
}

page::Table launches_of(const Explanation& all) {
  page::Table table{"launches",
                    "Launches, in order",
                    {{"launch", "No.", true},
                     {"kernel", "Kernel"},
                     {"family", "Family"},
                     {"fused_ops", "Fused operations"},
                     {"sources", "Source lines"},
                     {"modules", "Modules"},
                     {"bytes", "Bytes", true},
                     {"flops", "Flop", true},
                     {"floor_us", "Bound", true},
                     {"time_us", "Time", true},
                     {"share", "Of the bound"}}};
  table.empty = "None: every output is an input.";
  for (size_t i = 0; i < all.launches.size(); ++i) {
    const ExplainedLaunch& launch = all.launches[i];
    const ExplainedKernel& kernel = kernel_of(all, launch);
    table.rows.push_back(
        {page::count(static_cast<int64_t>(i)), kernel_link(all, launch.kernel),
         page::text(to_string(kernel.workload.family)),
         page::text(fmt::format("{}", fmt::join(spoken_ops(launch.fused_ops), ", "))),
         lines(launch.sources), lines(launch.modules), page::bytes(launch.cost.bytes),
         page::count(launch.cost.flops), page::microseconds(launch.floor_us),
         page::microseconds(kernel.time_us), bound_share(launch.floor_us, kernel.time_us)});
  }
  table.note =
      "The bound is the roofline's: each byte that a launch needs moved once and its arithmetic, "
      "at "
      "the device's full speed, one hidden behind the other. A launch is faster than that where "
      "its "
      "operands stay in the caches.";
  return table;
}

page::Table stored_of(const Explanation& all) {
  page::Table table{"stored",
                    "What keeps launches apart",
                    {{"launch", "Launch", true},
                     {"value", "Leaves in memory"},
                     {"readers", "For launches"},
                     {"reason", "Because"}}};
  table.empty = "Nothing: no launch reads what another one wrote.";
  for (size_t i = 0; i < all.launches.size(); ++i)
    for (const StoredFor& stored : all.launches[i].stored)
      table.rows.push_back({page::count(static_cast<int64_t>(i)), page::code(stored.value),
                            launch_links(stored.readers, "none"), page::text(stored.reason)});
  return table;
}

page::Table buffers_of(const Explanation& all) {
  page::Table table{"buffers",
                    "Buffers",
                    {{"number", "No.", true},
                     {"kind", "Kind"},
                     {"value", "Value"},
                     {"bytes", "Bytes", true},
                     {"arena_offset", "At byte of the arena", true},
                     {"writers", "Written by launch"},
                     {"readers", "Read by launch"}}};
  table.empty = "None.";
  int64_t number = 0;
  for (const ExplainedBuffer& buffer : all.buffers) {
    const bool is_temporary = buffer.kind == Buffer::Kind::kTemporary;
    const char* kind = is_temporary                          ? "temporary"
                       : buffer.kind == Buffer::Kind::kInput ? "input"
                                                             : "output";
    table.rows.push_back({page::count(number++), page::text(kind), page::code(buffer.value),
                          page::bytes(buffer.bytes),
                          is_temporary ? page::count(buffer.arena_offset) : page::quiet("-"),
                          launch_links(buffer.writers, "the caller"),
                          launch_links(buffer.readers, "the caller")});
  }
  table.is_folded = all.buffers.size() > 24;
  return table;
}

page::Facts kernel_facts(const Explanation& all, int number) {
  const ExplainedKernel& kernel = all.kernels[static_cast<size_t>(number)];
  std::vector<int> launches;
  for (size_t i = 0; i < all.launches.size(); ++i)
    if (all.launches[i].kernel == number) launches.push_back(static_cast<int>(i));
  page::Facts facts{fmt::format("Kernel {}: {}", kernel.workload.digest.short_hex(),
                                to_string(kernel.workload.family))};
  // The first fact's name is what links lead to.
  facts.facts = {{kernel_anchor(number), "Workload", page::code(kernel.workload.digest.hex())},
                 {"launches", "Launches", launch_links(launches, "none")},
                 {"schedule", kernel.known ? "Schedule" : "First guess",
                  kernel.schedule.empty() ? page::toned(page::text(kernel.no_schedule), Tone::kBad)
                                          : page::code(kernel.schedule)}};
  if (!launches.empty()) {
    const ExplainedLaunch& launch = all.launches[static_cast<size_t>(launches.front())];
    facts.facts.push_back(
        {"ops", "Fused operations",
         page::text(fmt::format("{}", fmt::join(spoken_ops(launch.fused_ops), ", ")))});
    facts.facts.push_back({"sources", "Source lines", lines(launch.sources)});
    facts.facts.push_back({"reads", "Reads", lines(launch.inputs)});
    facts.facts.push_back({"writes", "Writes", lines(launch.outputs)});
    facts.facts.push_back({"floor_us", "Roofline bound", page::microseconds(launch.floor_us)});
  }
  if (kernel.time_us > 0)
    facts.facts.push_back({"time_us", "Time", page::microseconds(kernel.time_us)});
  if (kernel.report.measured > 0)
    facts.facts.push_back(
        {"tuning", "Tuning",
         page::text(fmt::format("{} candidates, {} measured, {} rejected; the first guess took {}",
                                kernel.report.candidates, kernel.report.measured,
                                kernel.report.rejected, time_text(kernel.report.first_us)))});
  if (kernel.call)
    facts.facts.push_back(
        {"library", "Calls",
         page::text(fmt::format("{} of {} {}; where that is missing: {}, {}", kernel.call->function,
                                kernel.call->library, kernel.call->version, kernel.own_schedule,
                                time_text(kernel.own_us)))});
  return facts;
}

page::Table candidates_of(const Explanation& all, int number) {
  const ExplainedKernel& kernel = all.kernels[static_cast<size_t>(number)];
  page::Table table{fmt::format("candidates-{}", number),
                    "Candidates",
                    {{"number", "No.", true},
                     {"template", "Template"},
                     {"version", "Version", true},
                     {"schedule", "Schedule"}}};
  table.is_folded = true;
  const auto space = search_space(kernel.workload, all.target, Libraries::kTake);
  if (!space) {
    table.empty = "None: " + space.error().message;
    return table;
  }
  table.heading = fmt::format("Candidates: {}", space->size());
  table.note = "What a search tries, the best guess first.";
  const TemplateVersions versions = template_versions();
  int64_t order = 1;
  for (const Schedule& schedule : *space) {
    const std::string text = schedule.to_string();
    Value shown = page::code(text);
    if (kernel.known && text == kernel.schedule) shown = page::toned(std::move(shown), Tone::kGood);
    table.rows.push_back({page::count(order++), page::code(schedule.template_name),
                          page::count(find_version(versions, schedule.template_name)),
                          std::move(shown)});
  }
  return table;
}

page::Code source_of(const Explanation& all, int number) {
  const ExplainedKernel& kernel = all.kernels[static_cast<size_t>(number)];
  page::Code code{fmt::format("source-{}", number), "Generated source"};
  code.is_folded = true;
  const auto schedule = Schedule::parse(kernel.schedule);
  const auto source = schedule ? lower_to_source(kernel.workload, *schedule, all.target)
                               : Result<Source>(fail(schedule.error()));
  code.is_source = source.has_value();
  code.text = source ? source->text : "There is none: " + source.error().message;
  return code;
}

}  // namespace

std::string explanation_page(const std::string& file, const Explanation& all) {
  page::Document document{"", Path(file).filename().string()};
  document.about =
      "What Kiln makes of this program: its kernels in the order in which they are launched, where "
      "each comes from, what keeps them apart, and what they cost at least.";
  document.blocks = {tiles_of(all), facts_of(file, all), cuts_of(all), launches_of(all),
                     stored_of(all)};
  for (int i = 0; i < static_cast<int>(all.kernels.size()); ++i) {
    document.blocks.emplace_back(kernel_facts(all, i));
    document.blocks.emplace_back(candidates_of(all, i));
    if (!all.kernels[static_cast<size_t>(i)].schedule.empty())
      document.blocks.emplace_back(source_of(all, i));
  }
  document.blocks.emplace_back(buffers_of(all));
  return page::self_contained_page(document,
                                   "Made by `kiln explain --html` of " + version_line("kiln", {}));
}

}  // namespace kiln::cli
