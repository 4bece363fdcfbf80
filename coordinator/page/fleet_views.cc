// workers, misses, audit.
#include <fmt/format.h>

#include "compiler_core/page/values.h"
#include "coordinator/page/views.h"

namespace kiln::page {
namespace {

Value state_of(const WorkerStats& worker) {
  const std::string state = worker.state.empty() ? "serving" : worker.state;
  return toned(text(state), state == "serving"       ? Tone::kGood
                            : state == "quarantined" ? Tone::kBad
                                                     : Tone::kWarning);
}

Value last_hour(const Snapshot& now, const WorkerStats& worker) {
  const auto found = now.strips.find(worker.name);
  if (found == now.strips.end()) return quiet("soon");
  Value value;
  value.strip = found->second;
  return value;
}

std::string joined_names(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

std::string detail(const Snapshot& now, const std::string& text) {
  if (now.sees_details) return text;
  return text.substr(0, text.find('\n'));
}

std::string device_of(const Target& target) {
  std::string text = target.to_string();
  if (target.units > 0)
    text +=
        fmt::format(", {} {}", target.units, target.backend == Backend::kCuda ? "SMs" : "cores");
  if (!target.device_model.empty()) text += ", " + target.device_model;
  if (!target.toolkit.empty()) text += ", " + target.toolkit;
  return text;
}

Value outcome(const std::string& outcome) {
  const bool is_good = outcome == "tuned" || outcome == "joined";
  const bool is_dull = outcome == "not_found" || outcome == "abandoned" || outcome == "cancelled" ||
                       outcome == "permission_denied";
  return toned(text(outcome), is_good ? Tone::kGood : is_dull ? Tone::kQuiet : Tone::kBad);
}

Document not_here(std::string title, std::string why) {
  Document page{"", std::move(title)};
  page.status = 404;
  page.blocks.emplace_back(Notice{Tone::kWarning, std::move(why), ""});
  return page;
}

Document workers(const Snapshot& now, const Query& query) {
  Document page{"workers", "Workers",
                "Machines that compile and measure. The strip is the last hour: at work, waiting "
                "for a lock, idle, draining, in quarantine; empty where it was not connected."};
  Table table{"workers",
              "Connected",
              {{"name", "Name"},
               {"state", "State"},
               {"role", "Role"},
               {"target", "Device"},
               {"last_hour", "Last hour"},
               {"leases", "Leases", true},
               {"compiled", "Compiled", true},
               {"built", "Built for others", true},
               {"measured", "Measured", true},
               {"sentinel_us", "Calibration", true},
               {"idle_s", "Reported", true},
               {"waiting", "Waits for"},
               {"reason", "Why in quarantine"},
               {"sandbox", "Sandbox"},
               {"", ""}}};
  table.empty = query.filter().empty()
                    ? "No worker is connected: start one with `kiln-worker --coordinator "
                      "tcp://HOST:7557`."
                    : "No worker is called that, or is like that.";
  for (const WorkerStats& worker : now.status.stats.workers) {
    Value buttons;
    if (worker.state != "draining")
      buttons.acts = {{"Drain",
                       {{"kind", "drain"}, {"worker", worker.name}},
                       fmt::format("Drain {}? It finishes what it has and exits.", worker.name)}};
    table.rows.push_back(
        {linked(text(worker.name), "/workers?filter=" + encoded(worker.name)),
         state_of(worker),
         text(worker.role == "build" ? "only builds" : "measures"),
         text(worker.role == "build" ? "for " + worker.builds_for : device_of(worker.target)),
         last_hour(now, worker),
         count(worker.leases),
         count(worker.compiled),
         count(worker.built),
         count(worker.measured),
         microseconds(worker.sentinel_us),
         {seconds(worker.idle_s).text + " ago", worker.idle_s},
         text(worker.waiting),
         toned(text(worker.reason), Tone::kBad),
         text(worker.sandbox),
         std::move(buttons)});
  }
  page_rows(table, query, "name, device, state");
  page.blocks.emplace_back(std::move(table));
  return page;
}

Table missed_programs(const Snapshot& now) {
  Table table{"misses",
              "Asked for and not there",
              {{"program", "Program"},
               {"target", "Target"},
               {"mode", "Mode"},
               {"outcome", "What came of it"},
               {"times", "Asked", true},
               {"at_ms", "Last", true},
               {"took_s", "Took", true},
               {"kernels", "Kernels", true},
               {"cached", "Of them kept", true},
               {"candidates", "Candidates", true},
               {"users", "By"},
               {"reason", "Why"}}};
  table.empty = "Nothing was missed.";
  for (const Miss& miss : now.misses) {
    const auto in_program = [&](auto number) {
      return linked(count(static_cast<int64_t>(number)), "/program/" + miss.program.hex());
    };
    table.rows.push_back({program_link(miss.program), text(miss.target.to_string()),
                          text(to_string(miss.mode)), outcome(miss.outcome), count(miss.times),
                          ago(now.now_ms, miss.at_ms), seconds(miss.took_s),
                          in_program(miss.kernels), in_program(miss.cached),
                          in_program(miss.candidates), text(joined_names(miss.users)),
                          text(detail(now, miss.reason))});
  }
  return table;
}

Document misses(const Snapshot& now, const Query& query) {
  Document page{"misses", "Misses",
                "Programs that were asked for since the start and were not in the cache: the last "
                "thousand, and what came of each. Behind each key: what there is of the same graph "
                "for other targets and modes."};
  Table table = missed_programs(now);
  if (!query.filter().empty()) table.empty = "Nothing of what was missed is like that.";
  page_rows(table, query, "key, target, outcome, user");
  page.blocks.emplace_back(std::move(table));
  return page;
}

Document audit(const Snapshot& now, const Result<std::vector<AdminAct>>& acts, const Query& query) {
  Document page{"audit", "Audit",
                "What operators asked of the coordinators of this store, from the command line and "
                "from this page, and what those did about keys. The store keeps the last hundred "
                "thousand; `kiln audit` lists them all, and the log has them as `admin` lines. "
                "Those with the number 0 wait for the store."};
  Table table{"acts",
              "Acts",
              {{"number", "No.", true},
               {"at_ms", "When", true},
               {"who", "Who"},
               {"request", "What"},
               {"done", "Done"},
               {"outcome", "What came of it"},
               {"coordinator", "Coordinator"}}};
  table.empty = "Nobody asked for anything.";
  const auto add = [&](const AdminAct& act) {
    table.rows.push_back({count(act.number), ago(now.now_ms, act.at_ms),
                          act.who.empty() ? quiet("this machine") : text(act.who),
                          text(act.request),
                          toned(flag(act.done, "yes", "no"), act.done ? Tone::kGood : Tone::kBad),
                          text(act.outcome), text(act.coordinator)});
  };
  for (const AdminAct& act : now.acts_waiting) add(act);
  if (acts) {
    for (const AdminAct& act : *acts) add(act);
  } else {
    page.blocks.emplace_back(
        Notice{Tone::kWarning, "The store cannot be asked: " + acts.error().message, ""});
  }
  page_rows(table, query, "who, what");
  page.blocks.emplace_back(std::move(table));
  return page;
}

}  // namespace kiln::page
