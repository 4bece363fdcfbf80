#include "client/cli/why_miss.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace kiln::cli {
namespace {

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

// How near an entry is: an equal graph first, then equal components, then shared kernels.
size_t nearness(const Program& wanted, const Program& entry) {
  const auto first = components_of(wanted), second = components_of(entry);
  size_t equal = 0;
  for (size_t i = 0; i < first.size(); ++i) equal += first[i].second == second[i].second;
  return equal + (wanted.graph == entry.graph ? 100 : 0);
}

std::string shortened(const std::string& value) {
  if (value.empty()) return "-";
  return value.size() == 64 ? value.substr(0, 12) : value.substr(0, 34);
}

}  // namespace

MissReport why_miss(const Program& wanted, const std::vector<Program>& entries) {
  MissReport report;
  report.key = wanted.key;
  report.entries = entries.size();
  report.kernels = wanted.kernels.size();
  const Program* nearest = nullptr;
  std::set<Digest> known;
  for (const Program& entry : entries) {
    report.hit = report.hit || entry.key == wanted.key;
    if (nearest == nullptr || nearness(wanted, entry) > nearness(wanted, *nearest))
      nearest = &entry;
    const bool serves = entry.target == wanted.target && entry.mode == wanted.mode &&
                        entry.codegen == wanted.codegen;
    if (serves)
      for (const ProgramKernel& kernel : entry.kernels) known.insert(kernel.workload);
  }
  for (const ProgramKernel& kernel : wanted.kernels)
    report.kernels_known += known.contains(kernel.workload);
  const auto own = components_of(wanted);
  const auto other = nearest ? components_of(*nearest) : own;
  for (size_t i = 0; i < own.size(); ++i)
    report.components.push_back({own[i].first, own[i].second, nearest ? other[i].second : ""});
  return report;
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

std::string miss_text(const MissReport& report) {
  std::string text = fmt::format("program key {}: {} among {} programs\n", report.key.short_hex(),
                                 report.hit ? "there" : "not there", report.entries);
  text += fmt::format("  {:<15} {:<36} {:<36}\n", "component", "wanted", "nearest entry");
  for (const KeyComponent& each : report.components)
    text += fmt::format("{} {:<15} {:<36} {:<36}\n",
                        report.entries > 0 && each.differs() ? "!" : " ", each.name,
                        shortened(each.wanted), report.entries > 0 ? shortened(each.nearest) : "");
  text += fmt::format("{} of its {} kernels are in programs of this target, mode and generator\n",
                      report.kernels_known, report.kernels);
  return text;
}

nlohmann::ordered_json miss_json(const MissReport& report) {
  nlohmann::ordered_json components = nlohmann::ordered_json::array();
  for (const KeyComponent& each : report.components)
    components.push_back({{"name", each.name},
                          {"wanted", each.wanted},
                          {"nearest", each.nearest},
                          {"differs", report.entries > 0 && each.differs()}});
  return {{"program_key", report.key.hex()},
          {"hit", report.hit},
          {"entries", report.entries},
          {"kernels", report.kernels},
          {"kernels_known", report.kernels_known},
          {"components", std::move(components)}};
}

}  // namespace kiln::cli
