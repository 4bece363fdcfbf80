#include <fmt/format.h>

#include <algorithm>

#include "compiler_core/page/values.h"
#include "coordinator/page/views.h"

namespace kiln::page {
namespace {

constexpr size_t kBars = 12;

struct Progress {
  int64_t candidates = 0, settled = 0;
  size_t kernels_done = 0;
};

bool is_done(const OpenKernel& kernel) {
  return kernel.stage == "cached" || kernel.stage == "done" || kernel.stage == "failed";
}

double share_of(const OpenKernel& kernel) {
  if (is_done(kernel)) return 1;
  return kernel.candidates == 0 ? 0 : static_cast<double>(kernel.settled) / kernel.candidates;
}

Progress progress_of(const OpenProgram& program) {
  Progress sum;
  for (const OpenKernel& kernel : program.kernels) {
    if (is_done(kernel)) ++sum.kernels_done;
    if (kernel.stage == "cached") continue;
    sum.candidates += kernel.candidates;
    sum.settled += kernel.settled;
  }
  return sum;
}

// As long as the rest of the candidates takes, if they go on as those before did.
Value time_left(const OpenProgram& program) {
  const Progress done = progress_of(program);
  if (program.stage != "tuning" || done.settled < 1) return {"-", {}, {}, Tone::kQuiet};
  const double each_s = program.age_s / static_cast<double>(done.settled);
  return seconds(each_s * static_cast<double>(done.candidates - done.settled));
}

Value bars_of(const OpenProgram& program) {
  Value value;
  for (const OpenKernel& kernel : program.kernels) {
    if (value.bars.size() == kBars) break;
    value.bars.push_back({share_of(kernel),
                          fmt::format("{}, {}: {} of {} candidates", to_string(kernel.family),
                                      kernel.stage, kernel.settled, kernel.candidates),
                          "/kernel/" + kernel.key.hex()});
  }
  const size_t kernels = program.kernels.size() + static_cast<size_t>(program.more_kernels);
  if (kernels == 0) return quiet("not planned yet");
  value.text = fmt::format("{} of {}", progress_of(program).kernels_done, kernels);
  value.data = static_cast<int64_t>(kernels);
  return value;
}

Table detached(const Snapshot& now) {
  const Stats& stats = now.status.stats;
  Table table{"detached",
              "Queued without a client",
              {{"program", "Program"},
               {"target", "Target"},
               {"mode", "Mode"},
               {"state", "State"},
               {"reason", "Why"},
               {"", ""}}};
  table.empty = "Nothing is queued; `kiln warm --detach` does that.";
  table.note = fmt::format("{} queued, {} running, {} failed; the first hundred are listed.",
                           stats.detached_queued, stats.detached_running, stats.detached_failed);
  for (const DetachedStats& each : stats.detached) {
    Value buttons;
    buttons.acts = {{each.state == "failed" ? "Forget" : "Cancel",
                     {{"kind", "cancel"}, {"program", each.program.hex()}},
                     "End this program?"}};
    table.rows.push_back(
        {program_link(each.program), text(each.target.to_string()), text(to_string(each.mode)),
         toned(text(each.state), each.state == "failed" ? Tone::kBad : Tone::kPlain),
         text(detail(now, each.reason)), std::move(buttons)});
  }
  if (table.rows.empty()) table.note.clear();
  return table;
}

}  // namespace

Table open_programs(const Snapshot& now) {
  Table table{"open",
              "In flight",
              {{"program", "Program"},
               {"target", "Target"},
               {"mode", "Mode"},
               {"stage", "Stage"},
               {"candidates", "Candidates"},
               {"kernels", "Kernels"},
               {"waiters", "Waiters", true},
               {"age_s", "Since", true},
               {"left_s", "Left, about", true},
               {"waiting", "Waits for"}}};
  table.empty = "Nothing is in flight.";
  for (const OpenProgram& program : now.open) {
    const Progress done = progress_of(program);
    Value candidates =
        page::share_of(static_cast<double>(done.settled), static_cast<double>(done.candidates));
    if (done.candidates > 0)
      candidates.text = fmt::format("{} of {}", done.settled, done.candidates);
    Value waiters = count(program.waiters);
    if (program.detached) waiters.text += " + queue";
    table.rows.push_back({program_link(program.key), text(program.target.to_string()),
                          text(to_string(program.mode)), text(program.stage), std::move(candidates),
                          bars_of(program), std::move(waiters), seconds(program.age_s),
                          time_left(program), text(program.waiting)});
  }
  return table;
}

Document tuning(const Snapshot& now, const Query& query) {
  Document page{"tuning", "Tuning",
                "Programs that are being made. Each bar is a kernel: how many of its candidates "
                "are settled. Programs share kernels, and everybody who asks for one waits for the "
                "same work."};
  Table table = open_programs(now);
  const auto all = static_cast<size_t>(now.status.stats.flights_open);
  if (all > now.open.size() && !now.open.empty())
    table.note = fmt::format("The {} oldest of {}.", now.open.size(), all);
  page_rows(table, query, "key, target, stage");
  page.blocks.emplace_back(std::move(table));
  page.blocks.emplace_back(detached(now));
  return page;
}

}  // namespace kiln::page
