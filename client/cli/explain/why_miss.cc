#include "client/cli/explain/why_miss.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace kiln::cli {
namespace {

bool has_workload(const Program& program, const Digest& workload) {
  return std::ranges::find(program.kernels, workload, &ProgramKernel::workload) !=
         program.kernels.end();
}

// Whether the winner that `entry` has of `kernel` is one for the same templates.
bool has_current(const Program& entry, const ProgramKernel& kernel) {
  return std::ranges::any_of(entry.kernels, [&](const ProgramKernel& other) {
    return other.workload == kernel.workload && other.templates == kernel.templates;
  });
}

constexpr size_t kMostKernels = 12;  // printed of those missing

std::vector<KeyComponent> components_of(const Program& wanted, const Program& nearest) {
  std::vector<KeyComponent> components;
  const auto add = [&](const char* name, const auto& value) {
    components.push_back({name, value(wanted), value(nearest)});
  };
  add("graph", [](const Program& p) { return p.graph.hex(); });
  add("isa", [](const Program& p) { return p.target.to_string(); });
  add("device model", [](const Program& p) { return p.target.device_model; });
  add("cores or SMs", [](const Program& p) { return std::to_string(p.target.units); });
  add("toolkit", [](const Program& p) { return p.target.toolkit; });
  add("mode", [](const Program& p) { return std::string(to_string(p.mode)); });
  return components;
}

// The templates of the kernels that both have, as far as their versions differ. Not of the key: it
// says what of an equal key is tuned again.
KeyComponent template_component(const std::vector<ProgramKernel>& wanted, const Program& nearest) {
  TemplateVersions now, before;
  const auto add = [](TemplateVersions& list, const TemplateVersions& from,
                      const TemplateVersions& other) {
    for (const TemplateVersion& each : from)
      if (find_version(other, each.name) != each.version && find_version(list, each.name) == 0)
        list.push_back(each);
  };
  for (const ProgramKernel& kernel : wanted)
    for (const ProgramKernel& other : nearest.kernels) {
      if (other.workload != kernel.workload) continue;
      add(now, kernel.templates, other.templates);
      add(before, other.templates, kernel.templates);
    }
  return {"templates", to_string(now), to_string(before)};
}

// `nearest` may be null. `kernels`: those of `wanted` that it is about.
std::vector<KeyComponent> compare(const Program& wanted, const Program* nearest,
                                  const std::vector<ProgramKernel>& kernels) {
  std::vector<KeyComponent> components = components_of(wanted, nearest ? *nearest : wanted);
  components.push_back(template_component(kernels, nearest ? *nearest : wanted));
  if (nearest == nullptr)
    for (KeyComponent& each : components) each.nearest.clear();
  return components;
}

// How near an entry is: an equal graph first, then equal components, then shared kernels.
std::array<size_t, 3> nearness(const Program& wanted, const Program& entry) {
  size_t equal = 0, shared = 0;
  for (const KeyComponent& each : compare(wanted, &entry, wanted.kernels)) equal += !each.differs();
  for (const ProgramKernel& kernel : wanted.kernels) shared += has_workload(entry, kernel.workload);
  return {wanted.graph == entry.graph, equal, shared};
}

// The nearest of those that `matches` takes; null: there is none.
template <class Matches>
const Program* nearest_of(const Program& wanted, const std::vector<Program>& entries,
                          Matches matches) {
  const Program* nearest = nullptr;
  for (const Program& entry : entries)
    if (matches(entry) &&
        (nearest == nullptr || nearness(wanted, entry) > nearness(wanted, *nearest)))
      nearest = &entry;
  return nearest;
}

std::string shortened(const std::string& value) {
  if (value.empty()) return "-";
  return value.size() == 64 ? value.substr(0, 12) : value.substr(0, 34);
}

// "mode: default, not max-autotune": what of the key differs, but for the graph.
std::string differences(const std::vector<KeyComponent>& components) {
  std::string text;
  for (const KeyComponent& each : components)
    if (each.differs() && each.name != "graph")
      text += fmt::format("{}{} {}, not {}", text.empty() ? "" : "; ", each.name,
                          shortened(each.nearest), shortened(each.wanted));
  return text;
}

std::string reason(const MissingKernel& missing) {
  if (missing.components.empty()) return "no program here has it";
  const KeyComponent& templates = missing.components.back();
  if (std::ranges::none_of(missing.components, [&](const KeyComponent& each) {
        return each.differs() && each.name != "graph" && &each != &templates;
      }))
    return fmt::format("stale: {} now, {} when it won", templates.wanted, templates.nearest);
  return "here for another key: " + differences(missing.components);
}

}  // namespace

bool serves(const Program& entry, const Program& wanted) {
  return entry.target == wanted.target && entry.mode == wanted.mode;
}

MissReport why_miss(const Program& wanted, const std::vector<Program>& entries) {
  MissReport report;
  report.key = wanted.key;
  report.entries = entries.size();
  report.kernels = wanted.kernels.size();
  for (const Program& entry : entries) {
    if (entry.key != wanted.key) continue;
    const bool current = entry.template_stamp == wanted.template_stamp;
    (current ? report.hit : report.stale) = true;
  }
  if (report.hit) report.stale = false;
  report.components = compare(
      wanted, nearest_of(wanted, entries, [](const Program&) { return true; }), wanted.kernels);
  for (size_t k = 0; k < wanted.kernels.size(); ++k) {
    const ProgramKernel& kernel = wanted.kernels[k];
    if (std::ranges::any_of(entries, [&](const Program& entry) {
          return serves(entry, wanted) && has_current(entry, kernel);
        })) {
      ++report.kernels_known;
      continue;
    }
    const Program* nearest = nearest_of(
        wanted, entries, [&](const Program& e) { return has_workload(e, kernel.workload); });
    report.missing.push_back(
        {k, nearest ? compare(wanted, nearest, {kernel}) : std::vector<KeyComponent>()});
  }
  return report;
}

std::string meaning(const KeyComponent& component) {
  if (!component.differs()) return "";
  if (component.name == "graph")
    return "another computation: `kiln diff` says what differs between two files";
  if (component.name == "isa") return "code for another processor: see --target";
  if (component.name == "mode")
    return fmt::format("ask with --mode {}, or compile once with --mode {}", component.nearest,
                       component.wanted);
  if (component.name == "templates")
    return "the kernels they cover are tuned again, the old winners first; others are reused";
  if (component.name == "toolkit") return "made with another compiler: tuned again";
  return "tuned on another device: tuned again on this one";
}

Result<std::vector<Program>> cached_programs(const Path& cache_dir) {
  std::vector<Program> programs;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(cache_dir / "programs", error)) {
    if (entry.path().extension() != ".json") continue;
    TRY(const std::string text, read_file(entry.path()));
    if (auto program = program_from_json(text)) programs.push_back(*std::move(program));
  }
  if (error && error != std::errc::no_such_file_or_directory)
    return fail(Code::kInvalidArgument, cache_dir.string() + ": " + error.message());
  return programs;
}

std::string miss_text(const MissReport& report, const std::vector<std::string>& kernels) {
  std::string text = fmt::format(
      "program key {}: {} among {} programs ({})\n", report.key.short_hex(),
      report.hit     ? "there"
      : report.stale ? "there, planned with other templates,"
                     : "not there",
      report.entries,
      report.asked.empty() ? "nobody was asked" : fmt::to_string(fmt::join(report.asked, ", ")));
  text += fmt::format("  {:<15} {:<36} {:<36}\n", "component", "wanted", "nearest entry");
  for (const KeyComponent& each : report.components) {
    const bool differs = report.entries > 0 && each.differs();
    text += fmt::format("{} {:<15} {:<36} {:<36}\n", differs ? "!" : " ", each.name,
                        shortened(each.wanted), report.entries > 0 ? shortened(each.nearest) : "");
    if (differs) text += fmt::format("  {:<15} {}\n", "", meaning(each));
  }
  text += fmt::format("{} of its {} kernels are in programs of this target and mode\n",
                      report.kernels_known, report.kernels);
  for (size_t i = 0; i < report.missing.size() && i < kMostKernels; ++i)
    text += fmt::format("  {}\n      {}\n", kernels.at(report.missing[i].kernel),
                        reason(report.missing[i]));
  if (report.missing.size() > kMostKernels)
    text += fmt::format("  and {} more\n", report.missing.size() - kMostKernels);
  return text;
}

namespace {

nlohmann::ordered_json components_json(const std::vector<KeyComponent>& components, bool compared) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const KeyComponent& each : components)
    list.push_back({{"name", each.name},
                    {"wanted", each.wanted},
                    {"nearest", each.nearest},
                    {"differs", compared && each.differs()},
                    {"meaning", compared ? meaning(each) : ""}});
  return list;
}

}  // namespace

nlohmann::ordered_json miss_json(const MissReport& report,
                                 const std::vector<std::string>& kernels) {
  nlohmann::ordered_json missing = nlohmann::ordered_json::array();
  for (const MissingKernel& each : report.missing)
    missing.push_back({{"kernel", each.kernel},
                       {"what", kernels.at(each.kernel)},
                       {"reason", reason(each)},
                       {"components", components_json(each.components, true)}});
  return {{"program_key", report.key.hex()},
          {"hit", report.hit},
          {"stale", report.stale},
          {"entries", report.entries},
          {"asked", report.asked},
          {"kernels", report.kernels},
          {"kernels_known", report.kernels_known},
          {"components", components_json(report.components, report.entries > 0)},
          {"missing", std::move(missing)}};
}

}  // namespace kiln::cli
