#include "client/cli/explain/why_miss.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace kiln::cli {
namespace {

bool has_workload(const Program& program, const Digest& workload) {
  return std::ranges::any_of(
      program.kernels, [&](const ProgramKernel& kernel) { return kernel.workload == workload; });
}

constexpr size_t kMostKernels = 12;  // printed of those missing

std::vector<std::pair<std::string, std::string>> components_of(const Program& program) {
  const Target& target = program.target;
  return {{"graph", program.graph.hex()},
          {"isa", target.to_string()},
          {"device model", target.device_model},
          {"cores or SMs", std::to_string(target.units)},
          {"toolkit", target.toolkit},
          {"mode", std::string(to_string(program.mode))},
          {"code generator", program.codegen.hex()}};
}

// `nearest` may be null.
std::vector<KeyComponent> compare(const Program& wanted, const Program* nearest) {
  const auto own = components_of(wanted), other = components_of(nearest ? *nearest : wanted);
  std::vector<KeyComponent> components;
  for (size_t i = 0; i < own.size(); ++i)
    components.push_back({own[i].first, own[i].second, nearest ? other[i].second : ""});
  return components;
}

// How near an entry is: an equal graph first, then equal components, then shared kernels.
std::array<size_t, 3> nearness(const Program& wanted, const Program& entry) {
  size_t equal = 0, shared = 0;
  for (const KeyComponent& each : compare(wanted, &entry)) equal += !each.differs();
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
  return "here for another key: " + differences(missing.components);
}

}  // namespace

bool serves(const Program& entry, const Program& wanted) {
  return entry.target == wanted.target && entry.mode == wanted.mode &&
         entry.codegen == wanted.codegen;
}

MissReport why_miss(const Program& wanted, const std::vector<Program>& entries) {
  MissReport report;
  report.key = wanted.key;
  report.entries = entries.size();
  report.kernels = wanted.kernels.size();
  for (const Program& entry : entries) report.hit = report.hit || entry.key == wanted.key;
  report.components =
      compare(wanted, nearest_of(wanted, entries, [](const Program&) { return true; }));
  for (size_t k = 0; k < wanted.kernels.size(); ++k) {
    const Digest& workload = wanted.kernels[k].workload;
    const auto has = [&](const Program& entry) { return has_workload(entry, workload); };
    if (nearest_of(wanted, entries,
                   [&](const Program& entry) { return has(entry) && serves(entry, wanted); })) {
      ++report.kernels_known;
      continue;
    }
    const Program* nearest = nearest_of(wanted, entries, has);
    report.missing.push_back({k, nearest ? compare(wanted, nearest) : std::vector<KeyComponent>()});
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
  if (component.name == "code generator")
    return "made by another build of Kiln: tuned again, its winners' schedules first";
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
      report.hit ? "there" : "not there", report.entries,
      report.asked.empty() ? "nobody was asked" : fmt::to_string(fmt::join(report.asked, ", ")));
  text += fmt::format("  {:<15} {:<36} {:<36}\n", "component", "wanted", "nearest entry");
  for (const KeyComponent& each : report.components) {
    const bool differs = report.entries > 0 && each.differs();
    text += fmt::format("{} {:<15} {:<36} {:<36}\n", differs ? "!" : " ", each.name,
                        shortened(each.wanted), report.entries > 0 ? shortened(each.nearest) : "");
    if (differs) text += fmt::format("  {:<15} {}\n", "", meaning(each));
  }
  text += fmt::format("{} of its {} kernels are in programs of this target, mode and generator\n",
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
          {"entries", report.entries},
          {"asked", report.asked},
          {"kernels", report.kernels},
          {"kernels_known", report.kernels_known},
          {"components", components_json(report.components, report.entries > 0)},
          {"missing", std::move(missing)}};
}

}  // namespace kiln::cli
