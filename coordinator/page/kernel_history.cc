#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler_core/page/values.h"
#include "coordinator/page/kernel_parts.h"

namespace kiln::page {
namespace {

using Versions = std::map<std::string, int>;  // of templates, by name

bool is_right(const TuningRecord& record) {
  return record.verdict == Verdict::kOk && record.measurement.median_us() > 0;
}

// The measurements made while no template had another version than in `versions`.
struct Search {
  Versions versions;
  int64_t measured = 0, first_ms = 0, last_ms = 0;
  const TuningRecord* fastest = nullptr;  // null: none was right
};

// The oldest first. A record of another version of a template begins a search.
std::vector<Search> searches_of(const std::vector<TuningRecord>& records) {
  std::vector<Search> searches;
  for (const TuningRecord& record : records) {
    const std::string& name = record.schedule.template_name;
    if (searches.empty()) searches.emplace_back();
    const auto known = searches.back().versions.find(name);
    if (known != searches.back().versions.end() && known->second != record.template_version)
      searches.push_back({.versions = searches.back().versions});
    Search& search = searches.back();
    search.versions[name] = record.template_version;
    if (search.measured++ == 0) search.first_ms = record.taken_at_ms;
    search.last_ms = std::max(search.last_ms, record.taken_at_ms);
  }
  size_t seen = 0;
  for (Search& search : searches) {
    seen += static_cast<size_t>(search.measured);
    for (size_t i = 0; i < seen; ++i) {
      const TuningRecord& record = records[i];
      const auto version = search.versions.find(record.schedule.template_name);
      if (version == search.versions.end() || version->second != record.template_version) continue;
      if (is_right(record) &&
          (search.fastest == nullptr ||
           record.measurement.median_us() < search.fastest->measurement.median_us()))
        search.fastest = &record;
    }
  }
  return searches;
}

std::string names_of(const Versions& versions) {
  std::string text;
  for (const auto& [name, version] : versions)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, version);
  return text;
}

}  // namespace

Table earlier_winners(const Snapshot& now, const std::vector<TuningRecord>& records) {
  Table table{"winners",
              "The fastest of each search",
              {{"schedule", "Schedule"},
               {"best_us", "Time", true},
               {"share", "Beside the fastest ever"},
               {"measured", "Measurements", true},
               {"first_ms", "From", true},
               {"last_ms", "To", true},
               {"versions", "Templates and their versions"}}};
  table.empty = "Nothing was measured yet.";
  table.note =
      "A new version of a template begins a search; what other templates measured before stands. "
      "The finalists run in turn, so that another than the fastest here may have won.";
  std::vector<Search> searches = searches_of(records);
  double fastest_us = 0;
  for (const Search& search : searches)
    if (search.fastest != nullptr)
      if (const double us = search.fastest->measurement.median_us();
          fastest_us == 0 || us < fastest_us)
        fastest_us = us;
  std::ranges::reverse(searches);
  for (const Search& search : searches) {
    const double us = search.fastest == nullptr ? 0 : search.fastest->measurement.median_us();
    table.rows.push_back({search.fastest == nullptr ? quiet("none was right")
                                                    : code(search.fastest->schedule.to_string()),
                          microseconds(us), us > 0 ? share_of(fastest_us, us) : quiet("-"),
                          linked(count(search.measured), "#candidates-heading"),
                          ago(now.now_ms, search.first_ms), ago(now.now_ms, search.last_ms),
                          text(names_of(search.versions))});
  }
  return table;
}

Table template_history(const Snapshot& now, const std::vector<TuningRecord>& records) {
  struct Version {
    int64_t tried = 0, good = 0, first_ms = 0, last_ms = 0;
    double best_us = 0;
  };
  std::map<std::pair<std::string, int>, Version> versions;
  for (const TuningRecord& record : records) {
    Version& version = versions[{record.schedule.template_name, record.template_version}];
    ++version.tried;
    if (version.first_ms == 0) version.first_ms = record.taken_at_ms;
    version.last_ms = std::max(version.last_ms, record.taken_at_ms);
    const double us = record.measurement.median_us();
    if (record.verdict != Verdict::kOk) continue;
    ++version.good;
    if (us > 0 && (version.best_us == 0 || us < version.best_us)) version.best_us = us;
  }
  Table table{"history",
              "By template and version",
              {{"template", "Template"},
               {"version", "Version", true},
               {"best_us", "Best", true},
               {"records", "Measurements", true},
               {"good", "Of them good", true},
               {"first_ms", "From", true},
               {"last_ms", "To", true}}};
  table.empty = "Nothing was measured yet.";
  for (const auto& [name, version] : versions)
    table.rows.push_back({linked(code(name.first), "?filter=" + encoded(name.first)),
                          count(name.second), microseconds(version.best_us),
                          linked(count(version.tried), "?filter=" + encoded(name.first)),
                          linked(count(version.good), "?filter=ok"),
                          ago(now.now_ms, version.first_ms), ago(now.now_ms, version.last_ms)});
  return table;
}

}  // namespace kiln::page
