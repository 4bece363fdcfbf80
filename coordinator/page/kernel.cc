#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler_core/page/values.h"
#include "compiler_core/program/cubin_resources.h"
#include "coordinator/page/kernel_parts.h"
#include "coordinator/page/views.h"

namespace kiln::page {
namespace {

constexpr size_t kRunners = 24;

// The record of one candidate under one version of its template: the record with most samples,
// which is that of a final where there was one.
std::vector<const TuningRecord*> best_records(const std::vector<TuningRecord>& records) {
  std::map<std::pair<std::string, int>, const TuningRecord*> best;
  for (const TuningRecord& record : records) {
    const TuningRecord*& known = best[{record.schedule.to_string(), record.template_version}];
    if (known == nullptr ||
        record.measurement.samples_us.size() >= known->measurement.samples_us.size())
      known = &record;
  }
  std::vector<const TuningRecord*> kept;
  for (const auto& [name, record] : best) kept.push_back(record);
  // Candidates that were timed come first, the fastest of them at the top.
  std::ranges::stable_sort(kept, {}, [](const TuningRecord* record) {
    const double us = record->measurement.median_us();
    return std::pair(us <= 0 || record->verdict != Verdict::kOk, us);
  });
  return kept;
}

// The resources that each candidate takes of its GPU, by schedule and version, from the record of
// its compile.
using Resources = std::map<std::pair<std::string, int>, CubinResources>;
Resources resources_of(const std::vector<TuningRecord>& records) {
  Resources known;
  for (const TuningRecord& record : records)
    if (record.verdict == Verdict::kOk)
      if (const auto resources = parse_cubin_resources(record.log))
        known[{record.schedule.to_string(), record.template_version}] = *resources;
  return known;
}

std::string winner_of(const KernelFacts& facts) {
  return facts.stored ? facts.stored->kernel.schedule : "";
}

Race race_of(const KernelFacts& facts, const std::vector<const TuningRecord*>& records) {
  Race race{"race", "The race"};
  for (const TuningRecord* record : records) {
    if (record->measurement.samples_us.empty() || record->verdict != Verdict::kOk) continue;
    if (race.runners.size() == kRunners) break;
    const std::string schedule = record->schedule.to_string();
    race.runners.push_back({schedule, record->measurement.samples_us,
                            record->measurement.median_us(), schedule == winner_of(facts)});
  }
  race.note =
      "Each dot is one run, each mark a median, on a logarithmic scale; the winner is in another "
      "colour, and a label says in what a candidate differs. Shown is each one's longest series: "
      "the winner is decided in the final, where the finalists run in turn, and times of several "
      "workers are compared by their calibration.";
  return race;
}

Value verdict_of(Verdict verdict) {
  return toned(text(to_string(verdict)), verdict == Verdict::kOk ? Tone::kGood : Tone::kBad);
}

Table candidates_of(const Snapshot& now, const KernelFacts& facts, const Resources& resources,
                    const std::vector<const TuningRecord*>& records, const Query& query) {
  Table table{"candidates",
              "Candidates",
              {{"schedule", "Schedule"},
               {"verdict", "Verdict"},
               {"median_us", "Median", true},
               {"spread_us", "Spread", true},
               {"share", "Of the best"},
               {"samples", "Samples", true},
               {"worker", "Worker"},
               {"template_version", "Version", true},
               {"taken_at_ms", "When", true},
               {"log", "What was said"}}};
  if (!resources.empty())  // of a GPU
    table.columns.insert(table.columns.begin() + 6, {{"registers", "Registers", true},
                                                     {"local_bytes", "Spilled", true},
                                                     {"shared_bytes", "Shared memory", true}});
  table.empty = query.filter().empty() ? "Nothing was measured yet." : "No candidate is like that.";
  table.note = "Each schedule leads to the source that was printed for it.";
  double best_us = 0;
  for (const TuningRecord* record : records)
    if (const double us = record->measurement.median_us();
        us > 0 && record->verdict == Verdict::kOk && (best_us == 0 || us < best_us))
      best_us = us;
  for (const TuningRecord* record : records) {
    const std::string schedule = record->schedule.to_string();
    const double us = record->measurement.median_us();
    Value name = linked(code(schedule), "?source=" + encoded(schedule) + "#source-heading");
    if (schedule == winner_of(facts)) name = toned(std::move(name), Tone::kGood);
    std::vector<Value> row = {std::move(name),
                              verdict_of(record->verdict),
                              microseconds(us),
                              microseconds(record->measurement.spread_us()),
                              us > 0 ? share_of(best_us, us) : quiet("-"),
                              count(std::ssize(record->measurement.samples_us))};
    if (!resources.empty()) {
      const auto found = resources.find({schedule, record->template_version});
      const bool is_known = found != resources.end();
      const Value unknown{"-", {}, {}, Tone::kQuiet};
      row.push_back(is_known ? count(found->second.registers) : unknown);
      row.push_back(is_known ? bytes(found->second.local_bytes) : unknown);
      row.push_back(is_known ? bytes(found->second.shared_bytes) : unknown);
    }
    row.push_back(linked(text(record->worker), "/workers?filter=" + encoded(record->worker)));
    row.push_back(count(record->template_version));
    row.push_back(ago(now.now_ms, record->taken_at_ms));
    row.push_back(text(parse_cubin_resources(record->log) ? "" : detail(now, record->log)));
    table.rows.push_back(std::move(row));
  }
  page_rows(table, query, "schedule, verdict, worker");
  return table;
}

std::string reporters(const std::vector<Reporter>& all) {
  std::string text;
  for (const Reporter& each : all)
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", each.worker,
                        each.key.empty() ? "" : " (" + each.key + ")");
  return text.empty() || text == " " ? "nobody else" : text;
}

Facts facts_of(const StoredKernel& stored, const Resources& resources) {
  const ProgramKernel& kernel = stored.kernel;
  Facts facts{"The winner"};
  const auto in_list = [](int64_t number) { return linked(count(number), "#candidates-heading"); };
  facts.facts = {{"family", "Family", text(kernel.family)},
                 {"schedule", "Schedule", code(kernel.schedule)},
                 {"best_us", "Time", microseconds(kernel.report.best_us)},
                 {"first_us", "First guess", microseconds(kernel.report.first_us)},
                 {"tuned_on", "Tuned on", text(device_of(stored.tuned_on))},
                 {"candidates_listed", "Candidates", in_list(kernel.report.candidates)},
                 {"measured", "Measured", in_list(kernel.report.measured)},
                 {"rejected", "Rejected", in_list(kernel.report.rejected)},
                 {"built_by", "Built by", text(reporters({kernel.provenance.built}))},
                 {"measured_by", "Timed by", text(reporters({kernel.provenance.measured}))},
                 {"confirmed_by", "Confirmed by", text(reporters(kernel.provenance.confirmed))},
                 {"workload", "Workload", code(kernel.workload.hex())},
                 {"blob", "Binary", code(kernel.blob.hex())}};
  const auto schedule = Schedule::parse(kernel.schedule);
  const int version = schedule ? find_version(kernel.templates, schedule->template_name) : 0;
  facts.facts.push_back({"template_version", "Template's version", count(version)});
  if (const auto found = resources.find({kernel.schedule, version}); found != resources.end()) {
    facts.facts.push_back({"registers", "Registers a thread", count(found->second.registers)});
    facts.facts.push_back({"local_bytes", "Spilled a thread", bytes(found->second.local_bytes)});
    facts.facts.push_back(
        {"shared_bytes", "Shared memory a block", bytes(found->second.shared_bytes)});
  }
  if (kernel.fallback)
    facts.facts.push_back({"fallback", "Without the library", code(kernel.fallback->schedule)});
  return facts;
}

const OpenKernel* find_open(const Snapshot& now, const Digest& key) {
  for (const OpenProgram& program : now.open)
    for (const OpenKernel& kernel : program.kernels)
      if (kernel.key == key) return &kernel;
  return nullptr;
}

}  // namespace

Document kernel(const Snapshot& now, const KernelFacts& facts, const Query& query) {
  const OpenKernel* open = find_open(now, facts.key);
  const std::string title = "Kernel " + facts.key.short_hex();
  if (!facts.stored && facts.records.empty() && open == nullptr)
    return not_here(title, "The cache has no kernel of that key, and none is being tuned.");
  Document page{"cache", title};
  if (open != nullptr)
    page.blocks.emplace_back(Notice{
        Tone::kPlain,
        fmt::format(
            "It is being tuned ({}): {} of {} candidates are settled{}.", open->stage,
            open->settled, open->candidates,
            open->best_us > 0 ? ", the best so far takes " + microseconds(open->best_us).text : ""),
        "/tuning"});
  Facts programs{"",
                 {{"key", "Key", code(facts.key.hex())},
                  {"programs", "Programs with it",
                   linked(text("look in the cache"), "/cache?filter=" + facts.key.hex())}}};
  if (facts.stored && now.sees_details)
    if (const auto workload = workload_facts(*facts.stored); !workload.sources.empty())
      programs.facts.push_back({"sources", "First tuned for", text(workload.sources)});
  page.blocks.emplace_back(std::move(programs));
  const Resources resources = resources_of(facts.records);
  if (facts.stored) page.blocks.emplace_back(facts_of(*facts.stored, resources));
  const auto records = best_records(facts.records);
  if (Race race = race_of(facts, records); !race.runners.empty())
    page.blocks.emplace_back(std::move(race));
  page.blocks.emplace_back(candidates_of(now, facts, resources, records, query));
  page.blocks.emplace_back(earlier_winners(now, facts.records));
  page.blocks.emplace_back(template_history(now, facts.records));
  page.blocks.emplace_back(kernel_source(now, facts, query.get("source")));
  if (facts.stored && now.sees_details && !facts.stored->workload_text.empty())
    page.blocks.emplace_back(Code{"computes", "What it computes", facts.stored->workload_text,
                                  "Its workload, in Kiln's own operations.", false, true});
  return page;
}

}  // namespace kiln::page
