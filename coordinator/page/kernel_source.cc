#include <fmt/format.h>

#include <algorithm>

#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/page/values.h"
#include "compiler_core/program/offered_kernel.h"
#include "coordinator/page/kernel_parts.h"

namespace kiln::page {
namespace {

// The version of the template whose binary a worker has compiled from the schedule; the latest one.
// nullopt: no worker has.
std::optional<int> compiled_version(const KernelFacts& facts, const std::string& schedule) {
  std::optional<int> latest;
  for (const TuningRecord& record : facts.records)
    if (record.verdict == Verdict::kOk && record.schedule.to_string() == schedule)
      latest = std::max(latest.value_or(0), record.template_version);
  const ProgramKernel& winner = facts.stored->kernel;
  if (winner.schedule != schedule) return latest;
  const auto parsed = Schedule::parse(schedule);
  return parsed ? find_version(winner.templates, parsed->template_name) : latest;
}

Result<std::string> source_of(const StoredKernel& stored, const Schedule& schedule) {
  TRY(const Graph graph, parse_graph(stored.workload_text));
  TRY(const Family family, parse_family(stored.kernel.family));
  const Workload workload{graph, family, stored.kernel.workload};
  TRY(Source source, lower_to_source(workload, schedule, stored.tuned_on));
  if (schedule.to_string() == stored.kernel.schedule && source.recipe != stored.kernel.recipe)
    return fail(kiln::Code::kUnsupported,
                "this build launches it another way, so that it printed another");
  return std::move(source.text);
}

Notice quietly(std::string text) {
  return {Tone::kQuiet, std::move(text), ""};
}

}  // namespace

Block kernel_source(const Snapshot& now, const KernelFacts& facts, const std::string& asked) {
  constexpr std::string_view kOtherwise = " `kiln explain MODEL --source` prints it.";
  if (!facts.stored) return quietly("The source is shown once a winner is stored.");
  const StoredKernel& stored = *facts.stored;
  if (stored.workload_text.empty())
    return quietly(
        fmt::format("The source is not shown: an older Kiln stored this kernel, without "
                    "the workload that it is printed from.{}",
                    kOtherwise));
  if (!now.sees_details)
    return quietly("The source is for operators: a token of a key with the role admin shows it.");
  const std::string text = asked.empty() ? stored.kernel.schedule : asked;
  const auto schedule = Schedule::parse(text);
  const auto version = schedule ? compiled_version(facts, text) : std::nullopt;
  if (!version)
    return Notice{Tone::kWarning,
                  "No candidate of this kernel that was compiled has that schedule.", ""};
  if (is_offered(schedule->template_name))
    return quietly(
        fmt::format("Somebody offered '{}' as a finished binary: there is no source.", text));
  const int known = find_version(template_versions(), schedule->template_name);
  if (*version != known)
    return quietly(fmt::format(
        "The source of '{}' is not shown: {} of {} printed it, and this coordinator has {}.", text,
        *version == 0 ? "a version that is not known" : fmt::format("version {}", *version),
        schedule->template_name, known == 0 ? "none" : fmt::format("version {}", known)));
  auto source = source_of(stored, *schedule);
  if (!source) return quietly("There is no source: " + source.error().message + ".");
  Code code{"source", "Generated source", *std::move(source)};
  code.note = fmt::format("{}, printed again by version {} of the template, as the worker had it.",
                          text, known);
  code.is_source = true;
  code.is_folded = asked.empty();
  return code;
}

}  // namespace kiln::page
