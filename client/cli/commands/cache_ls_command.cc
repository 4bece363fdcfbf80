// `kiln cache ls`: programs and kernels of a store, read from its directory.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "cache/index.h"
#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "client/cli/service.h"

namespace kiln::cli {
namespace {

constexpr int kPage = 1000;

struct Line {
  Entry entry;
  int64_t bytes = 0;  // with the files of the blobs it names, which it may share
  std::string target, what, audience;
  bool damaged = false;
};

Result<std::vector<Entry>> all_entries(CacheIndex& index, EntryKind kind) {
  std::vector<Entry> entries;
  for (Digest after;;) {
    TRY(const std::vector<Entry> page, index.entries(kind, after, kPage));
    if (page.empty()) return entries;
    entries.insert(entries.end(), page.begin(), page.end());
    after = page.back().id.key;
  }
}

class Listing {
 public:
  explicit Listing(CacheIndex index) : index_(std::move(index)) {}

  // Sizes are of everything when they decide the order, else only of what is shown.
  Result<std::vector<Line>> lines(const Options& options) {
    std::vector<Line> lines;
    for (const EntryKind kind : {EntryKind::kProgram, EntryKind::kKernel}) {
      TRY(const std::vector<Entry> entries, all_entries(index_, kind));
      for (const Entry& entry : entries) lines.push_back({entry, 0, "", "", "", false});
    }
    const bool by_size = options.sort == "size";
    if (by_size)
      for (Line& line : lines) describe(line);
    std::ranges::stable_sort(lines, [&](const Line& a, const Line& b) {
      if (by_size) return a.bytes > b.bytes;
      if (options.sort == "key") return a.entry.id.key < b.entry.id.key;
      return a.entry.used_ms > b.entry.used_ms;
    });
    if (options.limit > 0 && lines.size() > static_cast<size_t>(options.limit))
      lines.resize(static_cast<size_t>(options.limit));
    if (!by_size)
      for (Line& line : lines) describe(line);
    return lines;
  }
  Result<IndexTotals> totals() { return index_.totals(); }

 private:
  void describe(Line& line) {
    line.bytes = line.entry.bytes;
    if (line.entry.id.kind == EntryKind::kKernel) {
      const auto row = index_.kernel(line.entry.id.key);
      line.damaged = !row;
      if (!row) return;
      line.target = row->tuned_on.to_string();
      line.what = row->kernel.schedule;
      line.bytes += file_bytes(row->kernel.blob);
      return;
    }
    const auto row = index_.program(line.entry.id.key);
    const auto program = row ? program_from_json(row->manifest) : fail(row.error());
    line.damaged = !program;
    if (!program) return;
    line.target = program->target.to_string();
    line.what = to_string(program->mode);
    line.audience = row->audience.to_text();
    std::ranges::replace(line.audience, '\n', ',');
    for (const Digest& blob : row->blobs) line.bytes += file_bytes(blob);
  }
  int64_t file_bytes(const Digest& blob) {
    const auto entry = index_.entry({EntryKind::kBlob, blob});
    return entry ? entry->bytes : 0;
  }

  CacheIndex index_;
};

nlohmann::ordered_json json_of(const Line& line) {
  const bool program = line.entry.id.kind == EntryKind::kProgram;
  return {{"kind", program ? "program" : "kernel"},
          {"key", line.entry.id.key.hex()},
          {"target", line.target},
          {program ? "mode" : "schedule", line.what},
          {"bytes", line.bytes},
          {"last_use", time_text(line.entry.used_ms)},
          {"last_use_ms", line.entry.used_ms},
          {"pinned", program && line.entry.held > 0},
          {"needed_by", program ? 0 : line.entry.held},
          {"audience", program && line.audience.empty() ? "all" : line.audience},
          {"damaged", line.damaged}};
}

std::string text_of(const Line& line) {
  const bool program = line.entry.id.kind == EntryKind::kProgram;
  std::string note = line.damaged ? "  damaged" : "";
  if (program && line.entry.held > 0) note += "  pinned";
  if (!line.audience.empty()) note += "  of " + line.audience;
  if (!program) note += fmt::format("  needed by {}", line.entry.held);
  return fmt::format("{:<7}  {}  {:>9.1f} KiB  {}  {}  {}{}\n", program ? "program" : "kernel",
                     line.entry.id.key.hex(), static_cast<double>(line.bytes) / 1024,
                     time_text(line.entry.used_ms), line.target, line.what, note);
}

Result<void> list(const Options& options) {
  TRY(const Path file, index_file(options));
  TRY(CacheIndex index, CacheIndex::open_for_reading(file));
  Listing listing(std::move(index));
  TRY(const IndexTotals totals, listing.totals());
  TRY(const std::vector<Line> lines, listing.lines(options));
  if (options.json) {
    nlohmann::ordered_json report = {{"data_dir", options.data_dir},
                                     {"programs", totals.programs},
                                     {"kernels", totals.kernels},
                                     {"blobs", totals.blobs},
                                     {"records", totals.records},
                                     {"bytes", totals.bytes},
                                     {"entries", nlohmann::ordered_json::array()}};
    for (const Line& line : lines) report["entries"].push_back(json_of(line));
    std::printf("%s\n", report.dump().c_str());
    return {};
  }
  for (const Line& line : lines) std::fputs(text_of(line).c_str(), stdout);
  std::fputs(fmt::format("{} programs, {} kernels, {} blobs, {} records; {:.1f} MiB in {}{}\n",
                         totals.programs, totals.kernels, totals.blobs, totals.records,
                         static_cast<double>(totals.bytes) / (1 << 20), options.data_dir,
                         static_cast<int64_t>(lines.size()) < totals.programs + totals.kernels
                             ? fmt::format(" ({} shown; --limit 0 shows all)", lines.size())
                             : "")
                 .c_str(),
             stdout);
  return {};
}

}  // namespace

int cache_ls_command(const Options& options) {
  if (!options.kind.empty()) return cache_ls_artifacts(options);
  const auto listed = list(options);
  if (listed) return kDone;
  print_error(options.data_dir, listed.error());
  return exit_code_of_store(listed.error());
}

}  // namespace kiln::cli
