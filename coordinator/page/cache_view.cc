#include <fmt/format.h>

#include "compiler_core/page/values.h"
#include "coordinator/page/views.h"

namespace kiln::page {
namespace {

Tiles tiles_of(const Snapshot& now) {
  const Store::Totals& totals = now.totals;
  const Stats& stats = now.status.stats;
  Value size = bytes(totals.stored_bytes);
  if (totals.max_bytes > 0)
    size.bars = {{static_cast<double>(totals.stored_bytes) / static_cast<double>(totals.max_bytes),
                  "of " + bytes(totals.max_bytes).text}};
  Tiles tiles;
  tiles.tiles = {
      {"program_count", "Programs", linked(count(totals.programs), "/cache")},
      {"kernel_count", "Kernels", count(totals.kernels), "each in as many programs as need it"},
      {"records", "Tuning records", count(totals.records), "they stay when binaries go"},
      {"stored_bytes", "On disk", std::move(size),
       totals.max_bytes > 0 ? "of " + bytes(totals.max_bytes).text : "without a bound"},
      {"evicted", "Made room", count(totals.evicted), "programs, since the start"},
      {"corrupt_blobs", "Damaged binaries",
       toned(count(totals.corrupt_blobs), totals.corrupt_blobs > 0 ? Tone::kBad : Tone::kPlain)},
      {"store_failures", "Failed writes",
       toned(count(stats.store_failures), stats.store_failures > 0 ? Tone::kBad : Tone::kPlain)}};
  if (stats.spooled > 0)
    tiles.tiles.push_back({"spooled", "Waiting for the store",
                           toned(count(stats.spooled), Tone::kWarning),
                           bytes(stats.spooled_bytes).text + " on this machine's disk alone"});
  return tiles;
}

// The other orders, each a link.
Choices orders(const Query& query) {
  const auto with = [&](const char* name, const char* value) {
    Query other = query;
    other.set("first", "");
    other.set("format", "");
    other.set(name, value);
    return "/cache" + other.to_string();
  };
  const std::string& sort = query.get("sort");
  const bool pinned = !query.get("pinned").empty();
  return {"Order",
          {{"latest use first", with("sort", ""), sort != "age" && sort != "size"},
           {"longest unused first, as they are evicted", with("sort", "age"), sort == "age"},
           {"largest manifest first", with("sort", "size"), sort == "size"},
           {pinned ? "pinned ones only: show all" : "pinned ones only",
            with("pinned", pinned ? "" : "1"), pinned}}};
}

std::vector<Value> row_of(const Snapshot& now, const ListedProgram& listed) {
  const auto program = program_from_json(listed.manifest);
  Value pinned = flag(listed.pinned, "yes", "");
  pinned.acts = {{listed.pinned ? "Unpin" : "Pin",
                  {{"kind", listed.pinned ? "unpin" : "pin"}, {"program", listed.key.hex()}}}};
  if (!program)
    return {program_link(listed.key),
            toned(text("unreadable"), Tone::kBad),
            {},
            {},
            {},
            {},
            bytes(listed.bytes),
            ago(now.now_ms, listed.used_ms),
            {},
            std::move(pinned)};
  double us = 0;
  for (const Launch& launch : program->launches)
    us += program->kernels[static_cast<size_t>(launch.kernel)].report.best_us;
  return {program_link(listed.key),
          text(device_of(program->target)),
          text(to_string(program->mode)),
          linked(code(program->graph.short_hex()), "/cache?filter=" + program->graph.hex()),
          linked(count(std::ssize(program->kernels)), "/program/" + listed.key.hex()),
          microseconds(us),
          bytes(listed.bytes),
          ago(now.now_ms, listed.used_ms),
          ago(now.now_ms, program->made_at_ms),
          std::move(pinned)};
}

}  // namespace

ProgramQuery program_query(const Query& query) {
  ProgramQuery wanted;
  wanted.text = query.filter();
  wanted.pinned_only = !query.get("pinned").empty();
  wanted.first = static_cast<int64_t>(std::min<size_t>(query.first(), size_t{1} << 40));
  wanted.limit = static_cast<int64_t>(query.limit());
  if (query.get("sort") == "age") wanted.order = ProgramQuery::Order::kOldestUse;
  if (query.get("sort") == "size") wanted.order = ProgramQuery::Order::kSize;
  return wanted;
}

Document cache(const Snapshot& now, const ProgramList& listed, const Query& query) {
  Document page{"cache", "Cache"};
  page.blocks.emplace_back(tiles_of(now));
  page.blocks.emplace_back(orders(query));
  Table table{"programs",
              "Programs",
              {{"program", "Program"},
               {"target", "Made for"},
               {"mode", "Mode"},
               {"graph", "Graph"},
               {"kernels", "Kernels", true},
               {"time_us", "All launches", true},
               {"manifest_bytes", "Manifest", true},
               {"used_ms", "Used", true},
               {"made_at_ms", "Made", true},
               {"pinned", "Pinned"}}};
  table.empty = query.filter().empty()
                    ? "The cache is empty: `kiln compile` or `kiln warm` fill it."
                    : "No program has that in its key or manifest.";
  for (const ListedProgram& each : listed.programs) table.rows.push_back(row_of(now, each));
  if (listed.is_partial)
    table.note = fmt::format(
        "Of the {} programs that come first in this order; the rest was not "
        "looked through.",
        program_query(query).most_searched);
  table.paging = Paging{static_cast<size_t>(program_query(query).first),
                        table.rows.size(),
                        static_cast<size_t>(listed.total),
                        query.limit(),
                        query.filter(),
                        "key, target, family, schedule"};
  page.blocks.emplace_back(std::move(table));
  return page;
}

}  // namespace kiln::page
